// SPDX-License-Identifier: GPL-2.0
/*
 * Executes a command in a confined environment.
 *
 * usage: ebbprof_confine filter COMMAND [ARGUMENT]...
 *        ebbprof_confine container COMMAND [ARGUMENT]...
 *
 * "filter" forbids perf_event_open, as the filter of a container does. "container" creates new
 * namespaces: user, mount (with a new /proc), PID, network, IPC and host name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int forbid_events(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Makes the caller root in the new user namespace. */
static int map_user(unsigned int user)
{
	char text[32];
	int file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	int length = snprintf(text, sizeof(text), "0 %u 1", user);
	int failed = file < 0 || write(file, text, length) != length;

	if (file >= 0)
		close(file);
	return failed;
}

/*
 * Continues in the first process of the container. The parent waits for it and exits with its
 * status.
 */
static int contain(void)
{
	const int namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
			       CLONE_NEWIPC | CLONE_NEWUTS;
	unsigned int user = geteuid();
	int status;
	pid_t pid;

	if (unshare(namespaces) || map_user(user))
		return 1;
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid)
		return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		       mount("proc", "/proc", "proc", 0, NULL);
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int main(int argc, char **argv)
{
	int failed;

	if (argc < 3)
		return 2;
	failed = strcmp(argv[1], "container") ? forbid_events() : contain();
	if (failed) {
		perror(argv[1]);
		return 1;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
