/* SPDX-License-Identifier: BSD-3-Clause */
/* safetensors_index.c -- see safetensors.h: reads and writes the index, which says which file of a
 * model has which tensor. */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "format/json_reader.h"
#include "format/json_write.h"
#include "format/file_name.h"
#include "format/safetensors.h"
#include "model/model.h"

struct places {
    struct safetensors_index_entry *items;
    size_t count, capacity;
};

static enum sidestep_status add_place(struct places *p, const char *name, const char *file,
                                      struct sidestep_error *err)
{
    if (!file_name_is_beneath(file, strlen(file)) || strchr(file, '/') != NULL)
        return FAIL(err, SIDESTEP_EUNSAFE, "the file of '%s' is '%s', which is not a file name",
                    display_name(name).text, display_name(file).text);
    TRY_GROW(p->items, p->capacity, p->count, err);
    p->items[p->count++] = (struct safetensors_index_entry){.name = name, .file = file};
    return SIDESTEP_OK;
}

static enum sidestep_status read_map(struct json_reader *json, struct places *places,
                                     struct sidestep_error *err)
{
    json_reader_enter(json, '{');
    for (bool first = true; json_reader_next(json, '}', &first);) {
        const char *name = json_reader_key(json);
        const char *file = json_reader_string(json);

        if (json->problem == NULL)
            TRY(add_place(places, name, file, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_index(struct json_reader *json, struct places *places,
                                       struct sidestep_error *err)
{
    bool has_map = false;

    json_reader_enter(json, '{');
    for (bool first = true; json_reader_next(json, '}', &first);) {
        if (strcmp(json_reader_key(json), "weight_map") != 0) {
            json_reader_skip(json);
            continue;
        }
        if (has_map)
            return FAIL(err, SIDESTEP_ECORRUPT, "it has two members 'weight_map'");
        has_map = true;
        TRY(read_map(json, places, err));
    }
    json_reader_end(json);
    if (json->problem != NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "byte %zu: %s", json->position, json->problem);
    return has_map ? SIDESTEP_OK : FAIL(err, SIDESTEP_ECORRUPT, "it has no member 'weight_map'");
}

enum sidestep_status safetensors_index_read(char *text, struct arena *arena,
                                            struct safetensors_index_entry **out, size_t *count,
                                            struct sidestep_error *err)
{
    struct json_reader json = json_reader_init(text);
    struct places places = {0};
    enum sidestep_status status = read_index(&json, &places, err);
    OWNED struct safetensors_index_entry *items = places.items;

    TRY(status);
    *out = arena_copy(arena, items, places.count * sizeof(*items));
    *count = places.count;
    return *out != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, places.count * sizeof(*items));
}

void safetensors_index_write(const struct safetensors_index_entry *places, size_t count,
                             uint64_t total_bytes, struct buffer *out)
{
    buffer_printf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n",
                  total_bytes);
    buffer_put_text(out, "  \"weight_map\": {");
    for (size_t i = 0; i < count; i++) {
        buffer_put_text(out, i != 0 ? ",\n    " : "\n    ");
        json_write_string(out, places[i].name);
        buffer_put_text(out, ": ");
        json_write_string(out, places[i].file);
    }
    buffer_put_text(out, "\n  }\n}\n");
}
