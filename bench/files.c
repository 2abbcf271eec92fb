/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c -- writes and reads files in the simplest way, and controls the page cache. */
#include "bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR_BYTES 4096u
#define SETTLE_US 200000u

double bench_write_file(const char *path, const void *memory, uint64_t bytes, bool direct)
{
    const unsigned char *from = memory;
    /* Write a whole last sector; the memory after the state is mapped. */
    uint64_t length = direct ? (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES : bytes;
    double began = bench_now();
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | (direct ? O_DIRECT : 0), 0666);

    if (fd < 0)
        bench_die("cannot create '%s'", path);
    for (uint64_t at = 0; at < length;) {
        size_t want = length - at < BENCH_REQUEST_BYTES ? length - at : BENCH_REQUEST_BYTES;
        ssize_t n = pwrite(fd, from + at, want, (off_t)at);
        if (n <= 0)
            bench_die("cannot write '%s'", path);
        at += (uint64_t)n;
    }
    if (fsync(fd) != 0 || close(fd) != 0)
        bench_die("cannot sync '%s'", path);
    return bench_now() - began;
}

double bench_read_file(const char *path, void *memory, bool whole, bool direct)
{
    unsigned char *to = memory;
    double began = bench_now();
    int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    ssize_t n;

    if (fd < 0)
        bench_die("cannot open '%s'", path);
    while ((n = read(fd, to, BENCH_REQUEST_BYTES)) > 0)
        to += whole ? n : 0;
    if (n < 0)
        bench_die("cannot read '%s'", path);
    (void)close(fd);
    return bench_now() - began;
}

uint64_t bench_file_bytes(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        bench_die("cannot stat '%s'", path);
    return (uint64_t)st.st_size;
}

/* The number of the file's pages in the page cache. */
static uint64_t cached_pages(int fd, uint64_t bytes)
{
    size_t pages = (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES, cached = 0;
    unsigned char *is_cached = calloc(pages, 1);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (is_cached == NULL || map == MAP_FAILED || mincore(map, bytes, is_cached) != 0)
        bench_die("mincore() does not work on this system");
    for (size_t i = 0; i < pages; i++)
        cached += is_cached[i] & 1;
    (void)munmap(map, bytes);
    free(is_cached);
    return cached;
}

static void make_cold(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || fsync(fd) != 0)
        bench_die("cannot open '%s'", path);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (st.st_size != 0 && cached_pages(fd, (uint64_t)st.st_size) != 0)
        bench_die("cannot drop '%s' from the page cache", path);
    (void)close(fd);
}

static void make_warm(const char *path)
{
    void *buffer = bench_map(BENCH_REQUEST_BYTES, true);

    (void)bench_read_file(path, buffer, false, false);
    bench_unmap(buffer, BENCH_REQUEST_BYTES);
}

static void for_each_file(const char *dir, void (*each)(const char *path))
{
    DIR *stream = opendir(dir);
    char path[4096];

    if (stream == NULL)
        bench_die("cannot open '%s'", dir);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        each(path);
    }
    (void)closedir(stream);
}

void bench_make_cold(const char *dir)
{
    for_each_file(dir, make_cold);
}

void bench_make_warm(const char *dir)
{
    for_each_file(dir, make_warm);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void bench_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    sync(); /* discard the freed blocks now, not within the next run */
    (void)usleep(SETTLE_US);
}
