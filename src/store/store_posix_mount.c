/* SPDX-License-Identifier: BSD-3-Clause */
/* store_posix_mount.c -- finds which program serves a FUSE mount: statfs(2) does not tell. */
#include "store/store_posix.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/base.h"

/* Programs whose name is in the source of their mounts, and not in the type. */
static const char *const named_by_source[] = {"mountpoint-s3", "blobfuse2"};

/* Take the type from a line of mountinfo: "36 35 0:32 / /mnt rw,nosuid shared:1 - fuse.sshfs
 * host:/dir rw". */
static bool take_type(const char *line, unsigned device_major, unsigned device_minor, char *type,
                      size_t room)
{
    unsigned found_major, found_minor;
    char fs_type[64], source[256];
    const char *rest = strstr(line, " - ");

    if (rest == NULL || sscanf(line, "%*d %*d %u:%u ", &found_major, &found_minor) != 2 ||
        found_major != device_major || found_minor != device_minor ||
        sscanf(rest, " - %63s %255s", fs_type, source) != 2)
        return false;
    snprintf(type, room, "%s", fs_type);
    for (size_t i = 0; i < ARRAY_LENGTH(named_by_source); i++)
        if (strcmp(fs_type, "fuse") == 0 && strcmp(source, named_by_source[i]) == 0)
            snprintf(type, room, "fuse.%s", source);
    return true;
}

void store_posix_mount_type(int fd, char *type, size_t room)
{
    char line[4096 + 512];
    struct stat st;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");

    if (mounts == NULL)
        return;
    if (fstat(fd, &st) == 0)
        while (fgets(line, sizeof(line), mounts) != NULL &&
               !take_type(line, major(st.st_dev), minor(st.st_dev), type, room))
            ;
    (void)fclose(mounts);
}
