/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor_kernel.c -- checks what kernel, container and limits allow this process.  It tries system
 * calls, because no file shows what a seccomp filter forbids.
 */
#include "inspect/doctor.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "base/base.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

#define CALL_CACHESTAT 451 /* not in glibc yet */

/* What the cgroups of this process leave of the machine's ${total} bytes. */
static void check_memory_limit(struct doctor *doctor, uint64_t total)
{
    struct cgroup_limits limits;

    cgroup_read("", &limits);
    if (limits.memory < total)
        doctor_add_bytes(doctor, "memory_limit", limits.memory,
                         " in this cgroup: a process that needs more is killed; saves take what is "
                         "left of it, and SIDESTEP_POOL_BYTES makes that less");
}

/* What to say of a system call that failed with ${code}.  ENOSYS is not only of old kernels:
 * filters of containers and emulators answer it too. */
#define REFUSAL(code) refusal_text((code), (char[128]){0}, 128)
static const char *refusal_text(int code, char *text, size_t bytes)
{
    if (code == ENOSYS)
        return "not offered here (old kernel, or a filter)";
    snprintf(text, bytes, "refused (%s)", ERRNO_TEXT(code));
    return text;
}

static void check_system(struct doctor *doctor)
{
    uint64_t available = cgroup_meminfo("MemAvailable", NULL);
    struct utsname name;

    if (uname(&name) == 0)
        doctor_add_finding(doctor, "kernel", SIDESTEP_ALLOWED_FACT, NULL, "Linux %s, %s",
                           name.release, name.machine);
    doctor_add_finding(doctor, "processors", SIDESTEP_ALLOWED_FACT, NULL, "%u for this process%s",
                       thread_cpu_count(),
                       thread_cpu_quota() == thread_cpu_count() ? " (the quota of its cgroup)"
                                                                : "");
    if (available != 0)
        doctor_add_bytes(doctor, "memory", available, " available");
    check_memory_limit(doctor, cgroup_meminfo("MemTotal", NULL));
}

/* ---- userfaultfd */

/* Open it as saves do.  False: refused, for the reason ${why}. */
static bool open_userfaultfd(struct uffd *uffd, bool *user_mode, struct sidestep_error *why)
{
    *user_mode = false;
    enum sidestep_status status = uffd_open(uffd, false, why);
    if (status == SIDESTEP_EPERM) {
        *user_mode = true;
        status = uffd_open(uffd, true, why);
    }
    return status == SIDESTEP_OK || why->sys_errno == EINVAL; /* EINVAL: it lacks what we need */
}

static void check_write_protection(struct doctor *doctor, const struct uffd *uffd)
{
    if (uffd->fd < 0)
        doctor_add_finding(
            doctor, "write_protection", SIDESTEP_ALLOWED_NO,
            "Use Linux 5.7 or newer, or 6.4 or newer to protect untouched pages too.",
            "the kernel cannot write-protect memory: saves copy the state");
    else if (uffd->populates)
        doctor_add_finding(
            doctor, "write_protection", SIDESTEP_ALLOWED_PARTLY, "Use Linux 6.4 or newer.",
            "pages that were never touched are not protected, and must be read first");
    else
        doctor_add_finding(doctor, "write_protection", SIDESTEP_ALLOWED_YES, NULL,
                           "also of pages that were never touched");
}

static void check_userfaultfd(struct doctor *doctor)
{
    static const char *const fix =
        "Any of: sysctl -w vm.unprivileged_userfaultfd=1; give the process CAP_SYS_PTRACE; give it "
        "read and write access to /dev/userfaultfd. In a container, the seccomp profile must allow "
        "the system call userfaultfd, or the device must be passed in (--device /dev/userfaultfd).";
    struct sidestep_error why = {0};
    struct uffd uffd;
    bool user_mode;

    if (!open_userfaultfd(&uffd, &user_mode, &why)) {
        doctor_add_finding(doctor, "userfaultfd", SIDESTEP_ALLOWED_NO, fix,
                           "%s: no copy-on-write snapshots, saves copy the state",
                           REFUSAL(why.sys_errno));
        return;
    }
    if (user_mode)
        doctor_add_finding(
            doctor, "userfaultfd", SIDESTEP_ALLOWED_PARTLY, fix,
            "for faults of user mode only: a system call that writes into protected memory "
            "would fail, so copy-on-write snapshots are off unless asked for");
    else
        doctor_add_finding(doctor, "userfaultfd", SIDESTEP_ALLOWED_YES, NULL,
                           "for all faults: copy-on-write snapshots are possible");
    check_write_protection(doctor, &uffd);
    uffd_close(&uffd);
}

/* ---- memory */

/* Saves read protected memory with process_vm_readv(), because another thread may unmap it. */
static void check_memory_reading(struct doctor *doctor)
{
    if (memory_reader_works())
        doctor_add_finding(
            doctor, "memory_reading", SIDESTEP_ALLOWED_YES, NULL,
            "process_vm_readv of this process is allowed: snapshots can copy on write");
    else
        doctor_add_finding(doctor, "memory_reading", SIDESTEP_ALLOWED_NO,
                           "In a container, the seccomp profile must allow process_vm_readv.",
                           "process_vm_readv %s: no copy-on-write snapshots, saves copy the state",
                           REFUSAL(errno));
}

/* A filter that kills for what sidestep tries: it does without. */
static void check_seccomp(struct doctor *doctor)
{
    char names[160] = "";

    for (unsigned i = 0; i < SECCOMP_CALL_COUNT; i++)
        if (!seccomp_survives((enum seccomp_call)i)) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, "%s%s", used != 0 ? ", " : "",
                     seccomp_call_name((enum seccomp_call)i));
        }
    if (names[0] != '\0')
        doctor_add_finding(doctor, "seccomp", SIDESTEP_ALLOWED_PARTLY,
                           "Let the seccomp profile allow these calls, or answer them with EPERM.",
                           "the filter kills a process that calls %s: sidestep does without",
                           names);
}

static void check_huge_pages(struct doctor *doctor)
{
    char enabled[128];

    doctor_read_line("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof(enabled));
    bool off = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
    if (off)
        doctor_add_finding(
            doctor, "huge_pages", SIDESTEP_ALLOWED_NO,
            "Find who starts this process with PR_SET_THP_DISABLE.",
            "switched off for this process: copying and protecting memory take longer");
    else if (enabled[0] == '\0' || strstr(enabled, "[never]") != NULL)
        doctor_add_finding(doctor, "huge_pages", SIDESTEP_ALLOWED_NO,
                           "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
                           "the system provides none: copying and protecting memory take longer");
    else
        doctor_add_finding(doctor, "huge_pages", SIDESTEP_ALLOWED_YES, NULL, "%s",
                           strstr(enabled, "[always]") != NULL
                               ? "for all memory"
                               : "for memory that asks for them: the staging pool does");
}

static void check_locked_memory(struct doctor *doctor)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_add_finding(doctor, "locked_memory", SIDESTEP_ALLOWED_FACT, NULL, "no limit");
    else
        doctor_add_bytes(doctor, "locked_memory", limit.rlim_cur, " at most; sidestep locks none");
}

/* Check for memory that makes saves copy the state, although the kernel allows copy-on-write. */
static void check_bypasses(struct doctor *doctor)
{
    struct sidestep_error why = {0};
    struct bypass bypass;

    if (bypass_read(&bypass, &why) != SIDESTEP_OK)
        doctor_add_finding(doctor, "pinned_memory", SIDESTEP_ALLOWED_NO,
                           "Mount /proc, and let this process read /proc/self/status.",
                           "unknown, so saves copy the state: %s", why.message);
    else if (bypass.pinned_bytes != 0)
        doctor_add_finding(
            doctor, "pinned_memory", SIDESTEP_ALLOWED_PARTLY,
            "Set SIDESTEP_TENSOR_CPU_WRITES for tensors to which no device writes, or "
            "unregister buffers (io_uring, RDMA, MPI) before a save.",
            "this process has %.1f MiB pinned for devices: saves copy the state",
            (double)bypass.pinned_bytes / (1 << 20));
    else
        doctor_add_finding(doctor, "pinned_memory", SIDESTEP_ALLOWED_FACT, NULL,
                           "this process has no memory pinned for devices; for another process, "
                           "see the copy_reason of its saves");
    if (bypass.merges)
        doctor_add_finding(
            doctor, "merged_memory", SIDESTEP_ALLOWED_PARTLY,
            "Do not give memory to KSM: no MADV_MERGEABLE, no PR_SET_MEMORY_MERGE (systemd: "
            "MemoryKSM=no).",
            "pages of this process may be merged (KSM): saves copy the state");
}

/* ---- input, output and priorities */

static void check_io_uring(struct doctor *doctor)
{
    char disabled[16];
    int failure = store_ring_probe();

    doctor_read_line("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));
    if (failure == 0)
        doctor_add_finding(doctor, "io_uring", SIDESTEP_ALLOWED_YES, NULL,
                           "many requests in flight from few threads: 8; after some large saves "
                           "the best of 4, 8 and "
                           "16, unless io_depth is set");
    else if (disabled[0] == '1' || disabled[0] == '2')
        doctor_add_finding(
            doctor, "io_uring", SIDESTEP_ALLOWED_NO, "sysctl -w kernel.io_uring_disabled=0",
            "switched off by kernel.io_uring_disabled=%c: threads read and write instead",
            disabled[0]);
    else
        doctor_add_finding(
            doctor, "io_uring", SIDESTEP_ALLOWED_NO,
            "In a container, the seccomp profile must allow io_uring_setup, io_uring_enter "
            "and io_uring_register; else use Linux 5.6 or newer.",
            "%s: threads read and write instead", REFUSAL(failure));
}

static void check_cachestat(struct doctor *doctor)
{
    struct {
        uint64_t offset, bytes;
    } range = {0};
    uint64_t result[5];
    errno = 0;
    /* The descriptor is invalid: EBADF if the call exists. */
    if (!fault_hit("doctor.cachestat") && syscall(CALL_CACHESTAT, -1, &range, result, 0) != 0 &&
        errno == EBADF)
        doctor_add_finding(doctor, "cachestat", SIDESTEP_ALLOWED_YES, NULL,
                           "loads that bypass the page cache read from it what it has");
    else
        doctor_add_finding(doctor, "cachestat", SIDESTEP_ALLOWED_NO,
                           "Use Linux 6.5 or newer. In a container, the seccomp profile must allow "
                           "cachestat.",
                           "%s: loads read cached pages from the disk, too", REFUSAL(errno));
}

static void check_priorities(struct doctor *doctor)
{
    static const char *const fix =
        "Raise the limit of niceness to 20 or more (LimitNICE=0 of systemd, 'nice' in "
        "/etc/security/limits.conf, ulimit -e 20), or give the process CAP_SYS_NICE.";
    struct priority_rights rights = priority_probe();

    if (!rights.idle)
        doctor_add_finding(doctor, "cpu_priority", SIDESTEP_ALLOWED_NO, fix,
                           "may not be lowered: background work competes with training");
    else if (!rights.raise)
        doctor_add_finding(doctor, "cpu_priority", SIDESTEP_ALLOWED_PARTLY, fix,
                           "may be lowered, but not raised again when training waits for a save: "
                           "background threads keep a nice value of 10 instead of the idle class");
    else
        doctor_add_finding(doctor, "cpu_priority", SIDESTEP_ALLOWED_YES, NULL,
                           "idle class in the background, normal while training waits");
    if (!rights.idle_io)
        doctor_add_finding(doctor, "io_priority", SIDESTEP_ALLOWED_NO,
                           "In a container, the seccomp profile must allow ioprio_set.",
                           "may not be lowered: background writes compete with training's reads");
    else
        doctor_add_finding(
            doctor, "io_priority", SIDESTEP_ALLOWED_YES, NULL,
            "idle class in the background, if the disk's scheduler supports classes");
}

/* ---- devices */

static void check_cuda(struct doctor *doctor)
{
    struct device_cuda_report cuda;

    device_cuda_probe(&cuda);
    if (cuda.off)
        doctor_add_finding(
            doctor, "cuda", SIDESTEP_ALLOWED_NO, "Unset SIDESTEP_CUDA.",
            "switched off by SIDESTEP_CUDA=0: tensors on devices are copied by torch");
    else if (cuda.problem[0] != '\0')
        doctor_add_finding(doctor, "cuda", SIDESTEP_ALLOWED_NO,
                           "Install a newer driver, or see whether nvidia-smi works.", "%s",
                           cuda.problem);
    else if (cuda.hidden)
        doctor_add_finding(doctor, "cuda", SIDESTEP_ALLOWED_NO,
                           "Start the container with its GPUs (--gpus all, or the NVIDIA runtime).",
                           "the kernel has NVIDIA's driver, but libcuda.so.1 is not found here");
    else if (cuda.version == 0)
        doctor_add_finding(doctor, "cuda", SIDESTEP_ALLOWED_FACT, NULL, "no driver (libcuda.so.1)");
    else if (cuda.devices == 0)
        doctor_add_finding(doctor, "cuda", SIDESTEP_ALLOWED_FACT, NULL,
                           "driver of CUDA %d.%d, no device for this process", cuda.version / 1000,
                           cuda.version % 1000 / 10);
    else
        doctor_add_finding(
            doctor, "cuda", SIDESTEP_ALLOWED_YES, NULL,
            "driver of CUDA %d.%d, %d device%s, the first is %s%s", cuda.version / 1000,
            cuda.version % 1000 / 10, cuda.devices, cuda.devices == 1 ? "" : "s", cuda.first,
            strstr(cuda.first, " MIG ") != NULL
                ? " (a part of one: a process sees one part, and parts share its link)"
                : "");
}

void doctor_check_kernel(struct doctor *doctor)
{
    check_system(doctor);
    check_userfaultfd(doctor);
    check_memory_reading(doctor);
    check_seccomp(doctor);
    check_huge_pages(doctor);
    check_locked_memory(doctor);
    check_bypasses(doctor);
    check_io_uring(doctor);
    check_cachestat(doctor);
    check_priorities(doctor);
    check_cuda(doctor);
}
