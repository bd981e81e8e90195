// SPDX-License-Identifier: GPL-2.0
/*
 * A program that takes EBBs with libebb.so, and loads two shared objects that do so too: one has
 * its own copy of the library, the other uses libebb.so.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include "libebb_test.h"

struct plugin {
	const char *object;
	int (*start)(void);
	unsigned long (*count)(void);
	int (*leave)(bool end);
	int (*end)(void);
};

static struct plugin own_copy = { .object = "libebb_plugin_static.so" };
static struct plugin shared_copy = { .object = "libebb_plugin_shared.so" };

static bool load(struct plugin *plugin)
{
	void *object = dlopen(plugin->object, RTLD_NOW | RTLD_LOCAL);

	if (!object) {
		printf("# %s\n", dlerror());
		return false;
	}
	plugin->start = (int (*)(void))dlsym(object, "plugin_start");
	plugin->count = (unsigned long (*)(void))dlsym(object, "plugin_count");
	plugin->leave = (int (*)(bool end))dlsym(object, "plugin_leave");
	plugin->end = (int (*)(void))dlsym(object, "plugin_end");
	return plugin->start && plugin->count && plugin->leave && plugin->end;
}

/* Works until a plugin has counted @more EBBs, or for 100 times as long as they take. */
static bool counts(struct plugin *plugin, unsigned long more)
{
	unsigned long target = plugin->count() + more;

	for (unsigned long i = 0; i < 100 * more && plugin->count() < target; i++)
		work(PERIOD);
	return plugin->count() >= target;
}

static void loading(void)
{
	check(load(&own_copy));
	check(load(&shared_copy));
}

static void *of_a_thread(void *argument)
{
	struct plugin *plugin = argument;

	check(!plugin->start());
	check(counts(plugin, 50));
	check(!plugin->end());
	return NULL;
}

/* Both plugins and the program itself at the same time, each on a thread of its own. */
static void at_once(void)
{
	struct plugin *plugins[] = { &own_copy, &shared_copy };
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	pthread_t threads[ARRAY_SIZE(plugins)];

	check(!ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	for (unsigned int i = 0; i < ARRAY_SIZE(plugins); i++)
		check(!pthread_create(&threads[i], NULL, of_a_thread, plugins[i]));
	check(goes_on(ebb, 50));
	for (unsigned int i = 0; i < ARRAY_SIZE(plugins); i++)
		check(!pthread_join(threads[i], NULL));
	ebb_close(ebb);
}

/* On one thread the first session has the EBBs until it ends. */
static void in_turn(void)
{
	struct plugin *plugins[] = { &own_copy, &shared_copy, &own_copy };

	for (unsigned int i = 0; i + 1 < ARRAY_SIZE(plugins); i++) {
		check(!plugins[i]->start());
		check(plugins[i + 1]->start() == EBUSY);
		check(counts(plugins[i], 20));
		check(!plugins[i]->end());
		check(!plugins[i + 1]->start());
		check(counts(plugins[i + 1], 20));
		check(!plugins[i + 1]->end());
	}
}

/* A session of the program and one of the plugin, with the same copy of the library. */
static void same_copy(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(!ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	check(shared_copy.start() == EBUSY);
	check(goes_on(ebb, 20));
	ebb_close(ebb);
	check(!shared_copy.start());
	check(counts(&shared_copy, 20));
	check(!shared_copy.end());
}

struct handover {
	struct ebb *ebb;
	int started;
	int again;
};

static void hand_over(struct ebb_context *context, void *user)
{
	struct handover *handover = user;

	if (handover->ebb && ebb_context_number(context) >= 3) {
		ebb_close(handover->ebb);
		handover->ebb = NULL;
		handover->started = own_copy.start();
		handover->again = own_copy.start();
	}
}

/* A plugin starts in a handler of another copy, whose session is closed: its EBB must end first. */
static void in_anothers_handler(void)
{
	struct handover handover = { .ebb = ebb_open("cycles", PERIOD, 0), .started = -1 };

	check(!ebb_start(handover.ebb, hand_over, &handover, EBB_SAVE_FULL));
	for (int i = 0; i < 1000 && handover.started == -1; i++)
		work(PERIOD);
	check(handover.started == EBUSY);
	check(handover.again == EBUSY);
	check(!own_copy.start());
	check(counts(&own_copy, 20));
	check(!own_copy.end());
}

/* The same start, after a jump out of a handler of the plugin's copy. */
static void after_a_jump(void)
{
	check(!own_copy.start());
	check(!own_copy.leave(false));
	own_copy.end();
	in_anothers_handler();
}

/* The same start, after a jump out of a handler that had closed the plugin's session. */
static void after_an_end(void)
{
	check(!own_copy.start());
	check(!own_copy.leave(true));
	in_anothers_handler();
}

struct walk {
	bool on;
	uint64_t count;
	uint64_t found;	/* with the interrupted address */
	uint64_t deep;	/* with callers of the interrupted code */
};

static void walk_stack(struct ebb_context *context, void *user)
{
	struct walk *walk = user;
	void *frames[32];
	int n;

	if (!walk->on)
		return;
	n = backtrace(frames, ARRAY_SIZE(frames));
	walk->count++;
	for (int i = 0; i < n; i++) {
		if (frames[i] == (void *)ebb_context_address(context)) {
			walk->found++;
			walk->deep += i + 1 < n;
			break;
		}
	}
}

/* The C library's backtrace() finds the way from a handler to the program. */
static void backtraces(void)
{
	struct walk walk = { 0 };
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	void *frame;

	/* The first call loads the unwinder. */
	backtrace(&frame, 1);
	check(!ebb_start(ebb, walk_stack, &walk, EBB_SAVE_FULL));
	check(counts_on(&walk.on, &walk.count, 50));
	ebb_close(ebb);
	check(walk.count >= 50 && walk.found == walk.count);
	check(walk.deep == walk.count);
}

int main(void)
{
	static const struct test tests[] = {
		{ "loading", loading },
		{ "at_once", at_once },
		{ "in_turn", in_turn },
		{ "same_copy", same_copy },
		{ "in_anothers_handler", in_anothers_handler },
		{ "after_a_jump", after_a_jump },
		{ "after_an_end", after_an_end },
		{ "backtraces", backtraces },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
