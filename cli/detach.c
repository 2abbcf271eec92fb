/* SPDX-License-Identifier: BSD-3-Clause */
/* detach.c -- see detach.h. */
#include "detach.h"

#include "output.h"
#include "verify_path.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(const struct cli *cli, const char *what, pid_t pid)
{
    struct sidestep_error err = {.rank = -1, .sys_errno = errno};

    cli_error_set(&err, errno == ENOSYS ? SIDESTEP_EUNSUPPORTED : SIDESTEP_EIO,
                  "%s process %ld: %s", what, (long)pid, strerror(errno));
    return cli_output_error(cli, &err);
}

/* The number of a process may get another one's; a descriptor stays that of one process. */
static void await(int process)
{
    struct pollfd ends = {.fd = process, .events = POLLIN};

    while (process >= 0 && !cli_interrupt_received() && poll(&ends, 1, -1) < 0 && errno == EINTR)
        continue;
}

/* Who started the parent would wait for the end of a pipe, and may be gone. A file stays. */
static void leave_session(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct stat stat;

    (void)setsid();
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        if (fd == STDIN_FILENO || fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
            (void)dup2(null, fd);
    if (null > STDERR_FILENO)
        close(null);
}

int cli_detach_until_end(const struct cli *cli, pid_t pid, bool *is_child)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);

    *is_child = false;
    if (process < 0 && errno != ESRCH) /* that one has ended */
        return fail(cli, "watch", pid);
    pid_t child = fork();
    if (child < 0) {
        int status = fail(cli, "leave a process behind", pid);
        if (process >= 0)
            close(process);
        return status;
    }
    *is_child = child == 0;
    if (*is_child) {
        leave_session();
        await(process);
    }
    if (process >= 0)
        close(process);
    return 0;
}
