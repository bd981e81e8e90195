// SPDX-License-Identifier: GPL-2.0
/*
 * A program with the marks of a runtime that has small stacks: with GO, the note of its build ID;
 * with OCAML, a function of its native code. With LIBRARY it is a shared object with these marks. A
 * program that is compiled with LINKED is linked to it.
 *
 * usage: ebbprof_stacks PASSES
 */
#include <stdlib.h>

#include "ebbprof_work.h"

#ifdef GO
__asm__(".pushsection .note.go.buildid, \"a\", @note\n\t"
	".balign 4\n\t"
	".long 4, 8, 4\n\t"
	".ascii \"Go\\0\\0\"\n\t"
	".ascii \"build/id\"\n\t"
	".popsection");
#endif

#ifdef OCAML
void caml_runstack(void);

void caml_runstack(void)
{
}
#endif

void of_library(void);

#ifdef LIBRARY
void of_library(void)
{
}
#else
WORK(half)

int main(int argc, char **argv)
{
	unsigned long passes = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;

#ifdef LINKED
	of_library();
#endif
	for (unsigned long n = 0; n < passes; n++)
		half(1000);
	return 0;
}
#endif
