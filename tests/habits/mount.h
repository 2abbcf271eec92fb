/* SPDX-License-Identifier: BSD-3-Clause */
/* mount.h -- the nodes of a mount and its calls; see habit_mount.c. */
#ifndef HABITS_MOUNT_H
#define HABITS_MOUNT_H

#define FUSE_USE_VERSION 34
#include <fuse_lowlevel.h>

#include "habits/habits.h"

/* A file or directory that the kernel knows. */
struct node {
    struct node *next;
    int fd; /* with O_PATH; stays with the file when that is renamed */
    dev_t device;
    ino_t inode;
    uint64_t lookups;
    unsigned opened;  /* handles */
    struct stat kept; /* attributes that this host remembers */
    double kept_until;
    int silly_parent; /* descriptor, or -1 */
    char silly_name[32];
};

extern struct habits habits;

struct node *node_of(fuse_ino_t ino);
/* The node of ${name}, with one more lookup; its attributes. Returns an errno. */
int node_find(struct node *parent, const char *name, struct fuse_entry_param *out);
void node_forget(struct node *node, uint64_t lookups);
void node_root(const char *path);
/* ESTALE: another host removed it. */
int node_check(struct node *node);
/* Attributes, as this host sees them. */
int node_stat(struct node *node, struct stat *out);
/* This host changed it, or looks at it anew. */
void node_refresh(struct node *node);

/* ---- mount_files.c */

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at, struct fuse_file_info *info);
void files_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t size, off_t at,
                 struct fuse_file_info *info);
void files_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void files_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *info);
void files_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *to, int which,
                   struct fuse_file_info *info);
void files_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info, struct flock *lock);
void files_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info, struct flock *lock,
                 int sleep);
/* Answers a request to create. */
void files_created(fuse_req_t req, struct fuse_entry_param *entry, int fd,
                   struct fuse_file_info *info);

#endif
