/* SPDX-License-Identifier: BSD-3-Clause */
/* beside.c -- see beside.h. */
#include "object/beside.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where Debian, Red Hat, SUSE and others keep the certificates that a system trusts. */
static const char *const usual_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

static void close_folder(DIR **folder)
{
    if (*folder != NULL)
        (void)closedir(*folder);
}

/* The package is site-packages/sidestep, and this code is in libsidestep.so.0 there. */
static bool folder_beside(const char *folder, char path[BESIDE_PATH_BYTES])
{
    Dl_info self;

    if (dladdr(usual_files, &self) == 0 || self.dli_fname == NULL)
        return false;
    const char *slash = strrchr(self.dli_fname, '/');
    if (slash == NULL)
        return false;
    int used = snprintf(path, BESIDE_PATH_BYTES, "%.*s/../%s", (int)(slash - self.dli_fname),
                        self.dli_fname, folder);
    return used >= 0 && used < BESIDE_PATH_BYTES;
}

bool beside_find(const char *folder, const char *prefix, char path[BESIDE_PATH_BYTES])
{
    if (!folder_beside(folder, path))
        return false;
    OWNED_BY(close_folder) DIR *list = opendir(path);
    struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        size_t used = strlen(path);
        int added = snprintf(path + used, BESIDE_PATH_BYTES - used, "/%s", entry->d_name);
        return added >= 0 && used + (size_t)added < BESIDE_PATH_BYTES;
    }
    return false;
}

static bool is_readable(const char *path)
{
    return path != NULL && access(path, R_OK) == 0;
}

const char *beside_certificates(const char *file, const char *folder, char path[BESIDE_PATH_BYTES])
{
    if (is_readable(file) || is_readable(folder))
        return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(usual_files); i++) {
        if (is_readable(usual_files[i]))
            return usual_files[i];
    }
    return beside_find("certifi", "cacert.pem", path) ? path : NULL;
}
