// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a command whose stderr is a terminal, and copies its output from there to stdout.
 *
 * usage: ebbprof_terminal COMMAND [ARGUMENT]...
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	char buffer[4096];
	ssize_t length;
	int status;
	pid_t child;

	if (argc < 2 || terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		return 2;
	child = fork();
	if (!child) {
		int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);

		if (other < 0 || dup2(other, STDERR_FILENO) < 0)
			_exit(2);
		close(terminal);
		close(other);
		execvp(argv[1], argv + 1);
		_exit(2);
	}
	/* The read fails once all descriptors of the other end are closed. */
	while ((length = read(terminal, buffer, sizeof(buffer))) > 0)
		if (write(STDOUT_FILENO, buffer, length) != length)
			return 2;
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 2;
	return WEXITSTATUS(status);
}
