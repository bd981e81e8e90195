// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the tests of libebb_calls.so, a shared object that needs libebb. dlopen() loads both when
 * the thread that takes the EBBs already runs.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int start[2];
static int (*run)(void);

static void *thread(void *status)
{
	char byte;

	*(int *)status = read(start[0], &byte, 1) == 1 ? run() : 1;
	return NULL;
}

int main(void)
{
	pthread_t other;
	void *object;
	int status;

	if (pipe(start) || pthread_create(&other, NULL, thread, &status))
		return 1;
	object = dlopen("libebb_calls.so", RTLD_NOW | RTLD_LOCAL);
	if (object)
		run = (int (*)(void))dlsym(object, "main");
	if (!run) {
		printf("# %s\n", dlerror());
		return 1;
	}
	if (write(start[1], "", 1) != 1)
		return 1;
	pthread_join(other, NULL);
	return status;
}
