/* SPDX-License-Identifier: BSD-3-Clause */
/* mount_nodes.c -- the files and directories that the kernel knows; see mount.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "habits/mount.h"

static struct node root = {.silly_parent = -1, .lookups = 1};
static struct node *nodes;

struct node *node_of(fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)ino;
}

void node_root(const char *path)
{
    struct stat st;

    root.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.fd < 0 || fstat(root.fd, &st) != 0)
        exit(1);
    root.device = st.st_dev;
    root.inode = st.st_ino;
}

static struct node *find(dev_t device, ino_t inode)
{
    for (struct node *node = nodes; node != NULL; node = node->next)
        if (node->device == device && node->inode == inode)
            return node;
    return NULL;
}

int node_check(struct node *node)
{
    struct stat st;

    if (!habits.stale || node->silly_parent >= 0)
        return 0;
    if (fstat(node->fd, &st) == 0 && st.st_nlink == 0) {
        memory_changed((uint64_t)(uintptr_t)node, "", false);
        return ESTALE;
    }
    return 0;
}

void node_refresh(struct node *node)
{
    node->kept_until = 0;
}

int node_stat(struct node *node, struct stat *out)
{
    int failed = node_check(node);

    if (failed != 0)
        return failed;
    if (node->kept_until <= memory_now()) {
        if (fstatat(node->fd, "", &node->kept, AT_EMPTY_PATH) != 0)
            return errno;
        node->kept_until = habits.remember > 0 ? memory_now() + habits.remember : 0;
    }
    *out = node->kept;
    return 0;
}

/* Opens ${name}. */
static int make(struct node *parent, const char *name, struct node **out)
{
    struct stat st;
    int fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0)
        return errno;
    struct node *node = find(st.st_dev, st.st_ino);
    if (node != NULL) {
        (void)close(fd);
    } else {
        node = calloc(1, sizeof(*node));
        if (node == NULL)
            return ENOMEM;
        *node = (struct node){
            .next = nodes, .fd = fd, .device = st.st_dev, .inode = st.st_ino, .silly_parent = -1};
        nodes = node;
    }
    *out = node;
    return 0;
}

/* What this host remembers of ${name}, if it does. */
static bool recall(struct node *parent, const char *name, struct node **out)
{
    const struct remembered *entry =
        habits.remember > 0 ? memory_find((uint64_t)(uintptr_t)parent, name) : NULL;

    *out = entry != NULL && entry->inode != 0 ? find(parent->device, entry->inode) : NULL;
    if (entry == NULL || (entry->inode != 0 && *out == NULL))
        return false;
    if (*out != NULL && node_check(*out) != 0) {
        memory_changed((uint64_t)(uintptr_t)parent, name, true);
        return false;
    }
    return true;
}

static int look(struct node *parent, const char *name, struct node **out)
{
    int failed = make(parent, name, out);

    if (habits.remember > 0 && (failed == 0 || failed == ENOENT))
        memory_keep((uint64_t)(uintptr_t)parent, name, failed == 0 ? (*out)->inode : 0,
                    habits.remember);
    return failed;
}

int node_find(struct node *parent, const char *name, struct fuse_entry_param *out)
{
    struct node *node;
    int failed = node_check(parent);

    if (failed == 0 && !recall(parent, name, &node))
        failed = look(parent, name, &node);
    else if (failed == 0 && node == NULL)
        failed = ENOENT;
    if (failed != 0)
        return failed;
    *out = (struct fuse_entry_param){.ino = (fuse_ino_t)(uintptr_t)node};
    failed = node_stat(node, &out->attr);
    if (failed == 0)
        node->lookups++;
    return failed;
}

void node_forget(struct node *node, uint64_t lookups)
{
    if (node == &root)
        return;
    node->lookups -= lookups;
    if (node->lookups != 0)
        return;
    memory_changed((uint64_t)(uintptr_t)node, "", false);
    for (struct node **at = &nodes; *at != NULL; at = &(*at)->next)
        if (*at == node) {
            *at = node->next;
            break;
        }
    (void)close(node->fd);
    free(node);
}
