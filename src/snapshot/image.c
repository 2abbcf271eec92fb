/* SPDX-License-Identifier: BSD-3-Clause */
/* image.c -- lays out a shard file and splits it into windows; see image.h. */
#include "snapshot/image.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

static enum sidestep_status image_memory(struct sidestep_error *err)
{
    return FAIL_NOMEM(err, sizeof(struct image_item));
}

static void set_sizes(struct image_item *item)
{
    struct footer_item *f = &item->footer;

    f->bytes = item->layout.head_bytes + item->layout.data_bytes + item->layout.tail_bytes;
    f->data_offset = item->layout.head_bytes;
    f->data_bytes = item->layout.data_bytes;
    f->raw_bytes = f->data_bytes;
    f->block_count = hash_block_count(f->data_bytes);
}

uint64_t image_align_offset(const struct footer_item *f, uint64_t at)
{
    if (f->data_bytes < IMAGE_LARGE_ITEM_BYTES)
        return round_up(at, IMAGE_SMALL_ALIGN);
    return round_up(at + f->data_offset, image_align()) - f->data_offset;
}

static enum sidestep_status new_hashes(struct arena *arena, struct image_item *item,
                                       struct sidestep_error *err)
{
    item->blocks = arena_new(arena, item->footer.block_count, sizeof(*item->blocks));
    item->crcs = arena_new(arena, item->footer.block_count, sizeof(*item->crcs));
    item->footer.blocks = item->blocks;
    return item->blocks != NULL && item->crcs != NULL ? SIDESTEP_OK : image_memory(err);
}

static enum sidestep_status copy_names(struct arena *arena, const struct state_entry *entry,
                                       struct footer_item *f, struct sidestep_error *err)
{
    f->name = arena_strndup(arena, entry->name, strlen(entry->name));
    if (f->name == NULL ||
        path_copy(arena, entry->path, entry->path_length, &f->path, NULL) != SIDESTEP_OK)
        return image_memory(err);
    f->path_length = entry->path_length;
    return SIDESTEP_OK;
}

static enum sidestep_status build_tensor(struct image *image, const struct state_entry *entry,
                                         const struct box *box, struct image_item *item,
                                         struct sidestep_error *err)
{
    struct footer_item *f = &item->footer;
    OWNED_BUFFER head = {0};
    size_t dims = entry->ndim * sizeof(int64_t);

    TRY(copy_names(&image->arena, entry, f, err));
    f->requires_grad = (entry->flags & SIDESTEP_TENSOR_REQUIRES_GRAD) != 0;
    f->dtype = entry->dtype;
    f->ndim = entry->ndim;
    f->shape = arena_copy(&image->arena, entry->shape, dims);
    f->box.ndim = entry->ndim;
    f->box.offsets = arena_copy(&image->arena, box->offsets, dims);
    f->box.lengths = arena_copy(&image->arena, box->lengths, dims);
    if (f->shape == NULL || f->box.offsets == NULL || f->box.lengths == NULL)
        return image_memory(err);
    TRY(archive_tensor_write_head(f->dtype, f->ndim, f->box.lengths, &head, &item->layout, err));
    assert(head.length == item->layout.head_bytes);
    item->head = arena_copy(&image->arena, head.bytes, head.length);
    if (item->head == NULL)
        return image_memory(err);
    set_sizes(item);
    return new_hashes(&image->arena, item, err);
}

enum sidestep_status image_build(struct image *image, const struct save_plan *plan,
                                 const struct sidestep_state_dict *state,
                                 struct sidestep_error *err)
{
    image_release(image);
    image->items = arena_new(&image->arena, plan->count, sizeof(*image->items));
    if (image->items == NULL)
        return image_memory(err);
    image->count = plan->count;
    for (size_t i = 0; i < plan->count; i++)
        image->items[i].planned = i;
    for (size_t i = 0; i < plan->count; i++) {
        const struct state_entry *entry = &state->entries[plan->items[i].entry];
        if (entry->is_object)
            break;
        TRY(WRAP(build_tensor(image, entry, &plan->items[i].box, &image->items[i], err), err,
                 "tensor '%s'", entry->name));
        image->tensor_count++;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status bind_object(struct image *image, const struct state_entry *entry,
                                        struct image_item *item, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};

    *item = (struct image_item){.entry = entry, .planned = item->planned};
    if (entry->value == NULL && entry->bytes == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "it has no value to save");
    TRY(copy_names(&image->objects, entry, &item->footer, err));
    /* A loaded object has both.  If it could not be parsed, its bytes are saved again. */
    if (entry->bytes != NULL)
        buffer_put(&bytes, entry->bytes, entry->length);
    else
        TRY(archive_object_write(entry->value, &bytes, err));
    TRY(buffer_check(&bytes, err));
    item->object = arena_copy(&image->objects, bytes.bytes, bytes.length);
    if (item->object == NULL)
        return image_memory(err);
    item->footer.is_object = true;
    item->layout = (struct archive_tensor_layout){.data_bytes = bytes.length};
    set_sizes(item);
    return new_hashes(&image->objects, item, err);
}

static enum sidestep_status bind_items(struct image *image, const struct save_plan *plan,
                                       const struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    for (size_t i = 0; i < image->count; i++) {
        const struct save_plan_item *planned = &plan->items[image->items[i].planned];
        const struct state_entry *entry = &state->entries[planned->entry];
        image->items[i].entry = entry;
        assert(entry->is_object == (i >= image->tensor_count)); /* as in image_build() */
        if (!entry->is_object)
            continue;
        TRY(WRAP(bind_object(image, entry, &image->items[i], err), err, "object '%s'",
                 entry->name));
    }
    return SIDESTEP_OK;
}

/* State of the loop that splits the file: the window that is being filled. */
struct splitter {
    struct image *image;
    uint64_t begin;
    size_t first_item;
};

/* End the window at ${end}, a multiple of image_align().  The next one starts with item
 * ${next_first}. */
static void end_window(struct splitter *c, uint64_t end, size_t next_first)
{
    assert(c->begin <= end);
    assert(end % image_align() == 0 && end - c->begin <= IMAGE_WINDOW_MAX_BYTES);
    if (end > c->begin)
        c->image->windows[c->image->window_count++] = (struct image_window){
            .offset = c->begin, .bytes = end - c->begin, .first_item = c->first_item};
    c->begin = end;
    c->first_item = next_first;
}

/* Split item ${i}, a large one, between two of its blocks.  The head and the first block stay in
 * one window. */
static void split_large_item(struct splitter *c, const struct footer_item *f, size_t i)
{
    for (uint64_t block = 1; block < f->block_count; block++) {
        uint64_t at = f->offset + f->data_offset + block * HASH_BLOCK_BYTES;
        if (at - c->begin + image_align() >= IMAGE_WINDOW_BYTES)
            end_window(c, at, i);
    }
}

/* An upper bound for the number of windows. */
static size_t max_windows(const struct image *image)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < image->count; i++)
        bytes += image->items[i].footer.bytes + image_align();
    return bytes / (IMAGE_WINDOW_BYTES - image_align()) + 3;
}

/* End the unchanged file at ${at}. */
static void end_unchanged_file(struct image *image, uint64_t at)
{
    assert(at % image_align() == 0 && image->unchanged_file_windows == 0);
    image->unchanged_file_bytes = at;
    image->unchanged_file_windows = image->window_count;
}

static enum sidestep_status lay_out_items(struct image *image, struct sidestep_error *err)
{
    struct splitter c = {.image = image};
    uint64_t at = 0;
    size_t most = max_windows(image);

    image->windows = arena_new(&image->objects, most, sizeof(*image->windows));
    if (image->windows == NULL)
        return image_memory(err);
    for (size_t i = 0; i < image->count; i++) {
        struct footer_item *f = &image->items[i].footer;
        bool is_other_file = image->splits_file && i != 0 && i == image->unchanged_file_items;
        if (is_other_file || at - c.begin >= IMAGE_WINDOW_BYTES) {
            at = round_up(at, image_align());
            end_window(&c, at, i);
        }
        if (is_other_file)
            end_unchanged_file(image, at);
        f->offset = image_align_offset(f, at);
        if (f->data_bytes >= IMAGE_LARGE_ITEM_BYTES)
            split_large_item(&c, f, i);
        at = f->offset + f->bytes;
    }
    image->body_bytes = round_up(at, image_align());
    end_window(&c, image->body_bytes, image->count);
    if (image->splits_file && image->count != 0 && image->unchanged_file_items == image->count)
        end_unchanged_file(image, image->body_bytes);
    assert(image->window_count <= most);
    return SIDESTEP_OK;
}

/* Release what image_bind() made. */
static void unbind(struct image *image)
{
    for (size_t i = 0; i < image->extra_count; i++)
        state_blob_release(image->blobs[i]);
    image->extra_count = 0;
    arena_release(&image->objects);
    image->windows = NULL;
    image->window_count = 0;
    image->unchanged_file_windows = 0;
    image->unchanged_file_bytes = 0;
}

/* Share the contents of the files. */
static enum sidestep_status bind_files(struct image *image, const struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    size_t count = state->file_count;
    OWNED_EXTRA_FILE_NAMES names = {0};

    image->extras = arena_new(&image->objects, count, sizeof(*image->extras));
    image->blobs = arena_new(&image->objects, count, sizeof(*image->blobs));
    if (image->extras == NULL || image->blobs == NULL)
        return image_memory(err);
    for (size_t i = 0; i < count; i++) {
        const struct state_file *file = &state->files[i];
        TRY(extra_file_check_name(file->name, SIDESTEP_EINVAL, err));
        image->extras[i] = (struct extra_file){
            .name = arena_strndup(&image->objects, file->name, strlen(file->name)),
            .bytes = file->blob != NULL && !file->blob->is_path ? file->blob->length : 0,
            .number = (uint32_t)i,
            .is_alias = file->blob == NULL,
            .first_rank = (file->flags & SIDESTEP_FILE_FIRST_RANK) != 0};
        if (image->extras[i].name == NULL)
            return image_memory(err);
        TRY(extra_file_names_add(&names, &image->extras[i], SIDESTEP_EINVAL, err));
        image->blobs[i] = state_blob_retain(file->blob);
        image->extra_count++;
    }
    return SIDESTEP_OK;
}

enum sidestep_status image_bind(struct image *image, const struct save_plan *plan,
                                const struct sidestep_state_dict *state, struct sidestep_error *err)
{
    assert(image->count == plan->count);
    unbind(image);
    TRY(bind_files(image, state, err));
    TRY(bind_items(image, plan, state, err));
    image_find_files(image);
    return lay_out_items(image, err);
}

void image_release(struct image *image)
{
    unbind(image);
    arena_release(&image->arena);
    *image = (struct image){0};
}
