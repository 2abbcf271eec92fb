/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * directory_probe.c -- finds out what a directory supports, with the store that saves use, and with
 * a file that it unlinks before it uses it.
 */
#include "root/directory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/base.h"

#define MAX_ALIGNMENT 65536u

/* Report a check that failed as "not known", because a missing finding looks like a yes. */
static void add_unknown(struct doctor *doctor, const char *name, const char *why)
{
    doctor_add_finding(doctor, name, SIDESTEP_ALLOWED_FACT, NULL, "not known: %s", why);
}

static void probe_file_system(struct doctor *doctor, struct store_dir *dir)
{
    struct sidestep_error why = {0};
    struct store_traits traits;

    if (store_dir_traits(dir, &traits, &why) != SIDESTEP_OK) {
        add_unknown(doctor, "durable", why.message);
        add_unknown(doctor, "shared", why.message);
        add_unknown(doctor, "free_space", why.message);
        return;
    }
    if (traits.is_volatile)
        doctor_add_finding(doctor, "durable", SIDESTEP_ALLOWED_NO,
                           "Save to a directory on a disk or on network storage.",
                           "%s is in memory: nothing there survives a crash of the machine",
                           traits.type_name);
    else
        doctor_add_finding(doctor, "durable", SIDESTEP_ALLOWED_YES, NULL, "file system %s",
                           traits.type_name);
    if (traits.is_network)
        doctor_add_finding(doctor, "shared", SIDESTEP_ALLOWED_YES, NULL,
                           "%s: ranks on several hosts can save together", traits.type_name);
    else
        doctor_add_finding(doctor, "shared", SIDESTEP_ALLOWED_FACT, NULL,
                           "%s is of this host: enough for ranks that all run here",
                           traits.type_name);
    if (traits.has_free_bytes)
        doctor_add_bytes(doctor, "free_space", traits.free_bytes, "");
    else
        add_unknown(doctor, "free_space", "the file system does not tell");
}

/* Read the name of the disk's I/O scheduler, which is in brackets; "" if there is no such file. */
static void read_scheduler(uint64_t device, char *name, size_t room)
{
    char path[96], line[128];

    name[0] = '\0';
    for (unsigned up = 0; up < 2 && name[0] == '\0'; up++) { /* a partition uses that of its disk */
        snprintf(path, sizeof(path), "/sys/dev/block/%u:%u%s/queue/scheduler", major(device),
                 minor(device), up != 0 ? "/.." : "");
        doctor_read_line(path, line, sizeof(line));
        const char *begin = strchr(line, '['), *end = begin != NULL ? strchr(begin, ']') : NULL;
        if (end != NULL)
            snprintf(name, room, "%.*s", (int)(end - begin - 1), begin + 1);
    }
}

static void probe_scheduler(struct doctor *doctor, struct store_dir *dir)
{
    static const char *const fix =
        "echo bfq > /sys/block/DISK/queue/scheduler (as root), if training reads from this disk "
        "while saves write to it; or set a limit of bandwidth.";
    struct sidestep_error why = {0};
    struct store_stat stat;
    char name[32];

    if (store_dir_stat(dir, &stat, &why) != SIDESTEP_OK) {
        add_unknown(doctor, "disk_scheduler", why.message);
        return;
    }
    read_scheduler(stat.device, name, sizeof(name));
    if (name[0] == '\0')
        doctor_add_finding(
            doctor, "disk_scheduler", SIDESTEP_ALLOWED_FACT, NULL,
            "not a single disk of this host: background writes go on at full speed while "
            "training reads");
    else if (strcmp(name, "bfq") == 0)
        doctor_add_finding(
            doctor, "disk_scheduler", SIDESTEP_ALLOWED_YES, NULL,
            "bfq: requests of low priority give way, and go one at a time while training reads");
    else if (strcmp(name, "mq-deadline") == 0)
        doctor_add_finding(
            doctor, "disk_scheduler", SIDESTEP_ALLOWED_YES, NULL,
            "mq-deadline: requests of low priority give way, for a while, and go one at a "
            "time while training reads");
    else
        doctor_add_finding(
            doctor, "disk_scheduler", SIDESTEP_ALLOWED_PARTLY, fix,
            "%s has no priorities: background writes compete with training's reads, one "
            "at a time",
            name);
}

/* Try a direct write, because the kernel may accept O_DIRECT at open and refuse the write. */
static void probe_direct_io(struct doctor *doctor, struct store_file *file)
{
    static const uint8_t page[MAX_ALIGNMENT] __attribute__((aligned(MAX_ALIGNMENT)));
    static const char *const fix = "Save to a file system that supports it: ext4, xfs, btrfs ...";
    size_t alignment = store_file_alignment(file);
    struct sidestep_error why = {0};

    if (alignment != 0 && alignment <= MAX_ALIGNMENT) {
        if (store_file_write_at(file, page, alignment, 0, &why) != SIDESTEP_OK) {
            doctor_add_finding(
                doctor, "direct_io", SIDESTEP_ALLOWED_NO,
                why.status == SIDESTEP_ENOSPC ? "Make room: a page could not be written." : fix,
                "%s", why.message);
            return;
        }
        alignment = store_file_alignment(file);
    }
    if (alignment == 0)
        doctor_add_finding(
            doctor, "direct_io", SIDESTEP_ALLOWED_NO, fix,
            "refused: writes and reads go through the page cache, at the cost of memory, "
            "processor time and speed");
    else
        doctor_add_finding(doctor, "direct_io", SIDESTEP_ALLOWED_YES, NULL,
                           "requests aligned to %zu bytes go past the page cache", alignment);
}

static void probe_locks(struct doctor *doctor, struct store_file *file)
{
    struct sidestep_error why = {0};

    enum sidestep_status status = store_file_lock(file, true, &why);
    doctor->no_memory = doctor->no_memory || status == SIDESTEP_ENOMEM;
    if (status == SIDESTEP_OK)
        doctor_add_finding(
            doctor, "locks", SIDESTEP_ALLOWED_YES, NULL,
            "a series has one owner, and leftovers can be told from saves under way");
    else
        doctor_add_finding(doctor, "locks", SIDESTEP_ALLOWED_NO,
                           "Mount with locks (NFS 4, or without nolock; Lustre with -o flock).",
                           "%s", why.message);
}

static void probe_commit(struct doctor *doctor, struct store_dir *dir)
{
    struct sidestep_error why = {0};

    enum sidestep_status status = storage_check(dir, false, &why);
    doctor->no_memory = doctor->no_memory || status == SIDESTEP_ENOMEM;
    if (status == SIDESTEP_OK)
        doctor_add_finding(doctor, "commit", SIDESTEP_ALLOWED_YES, NULL,
                           "files are written at any place, and a directory gets its name at once");
    else
        doctor_add_finding(doctor, "commit", SIDESTEP_ALLOWED_NO,
                           "Save to the object store itself, as s3://BUCKET/PREFIX, or to a file "
                           "system (ext4, xfs, NFS, Lustre ...).",
                           "saves are refused here: %s", why.message);
}

/* Who may write to a directory may rename and delete all that is in it. */
static void probe_rights(struct doctor *doctor, const char *directory)
{
    struct stat st;

    if (stat(directory, &st) != 0) {
        add_unknown(doctor, "rights", ERRNO_TEXT(errno));
        return;
    }
    unsigned mode = (unsigned)st.st_mode & 07777u;
    if ((mode & S_IWOTH) != 0 && (mode & S_ISVTX) == 0)
        doctor_add_finding(doctor, "rights", SIDESTEP_ALLOWED_PARTLY,
                           "chmod o-w, or chmod +t, so that users remove only what is theirs.",
                           "mode %04o: every user of this machine may rename, delete and replace "
                           "checkpoints here",
                           mode);
    else if ((mode & S_IWOTH) != 0)
        doctor_add_finding(doctor, "rights", SIDESTEP_ALLOWED_FACT, NULL,
                           "mode %04o: every user may save here, and remove only what is theirs",
                           mode);
    else
        doctor_add_finding(doctor, "rights", SIDESTEP_ALLOWED_YES, NULL,
                           "mode %04o: not every user may change what is here", mode);
}

static enum sidestep_status make_nameless_file(struct store_dir *dir, struct store_file **file,
                                               struct sidestep_error *err)
{
    uint64_t number;
    char name[64];

    TRY(random_bytes(&number, sizeof(number), err));
    snprintf(name, sizeof(name), ".sidestep.doctor.%016llx", (unsigned long long)number);
    TRY(store_file_create(dir, name, STORE_DIRECT, file, err));
    return store_unlink(dir, name, err);
}

enum sidestep_status directory_probe(struct doctor *doctor, struct store *store, const char *path,
                                     struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    OWNED_FILE *file = NULL;
    struct sidestep_error why = {0};

    TRY(store_dir_open(store, NULL, path, &dir, err));
    probe_file_system(doctor, dir);
    probe_scheduler(doctor, dir);
    probe_rights(doctor, path);
    enum sidestep_status status = make_nameless_file(dir, &file, &why);
    if (status == SIDESTEP_ENOMEM) {
        error_copy(err, &why);
        return status;
    }
    doctor_add_writable(doctor, status, "files can be made here", &why);
    if (status == SIDESTEP_OK) {
        probe_direct_io(doctor, file);
        probe_locks(doctor, file);
        probe_commit(doctor, dir);
    }
    return SIDESTEP_OK;
}
