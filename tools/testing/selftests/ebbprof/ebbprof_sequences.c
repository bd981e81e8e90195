// SPDX-License-Identifier: GPL-2.0
/*
 * A program with restartable sequences of about 20000 instructions each. Prints the number of those
 * that have committed.
 */
#include <stddef.h>
#include <stdio.h>
#include <sys/rseq.h>

/*
 * A restartable sequence: stores @descriptor to @rseq_cs, executes a loop @turns times and commits.
 * Returns 1, or 0 if it is aborted.
 */
int sequence(unsigned long *rseq_cs, const void *descriptor, unsigned long turns);
extern const char sequence_descriptor[];

__asm__(".pushsection .text\n\t"
	".globl sequence\n\t"
	".type sequence, @function\n"
	"sequence: std 4, 0(3)\n"
	"1: mtctr 5\n"
	"2: bdnz 2b\n\t"
	"li 3, 1\n"
	"3: blr\n\t"
	".long 0x0fe5000b\n"
	"4: li 3, 0\n\t"
	"blr\n\t"
	".size sequence, . - sequence\n\t"
	".popsection\n\t"
	".pushsection .data.rel.ro, \"aw\"\n\t"
	".balign 32\n\t"
	".globl sequence_descriptor\n"
	"sequence_descriptor: .quad 0, 1b, 3b - 1b, 4b\n\t"
	".popsection");

int main(void)
{
	const int all = 20;
	int committed = 0;
	unsigned long *rseq_cs;
	char *thread;

	if (!__rseq_size)
		return 1;
	__asm__("mr %0, 13" : "=r" (thread));
	rseq_cs = (unsigned long *)(thread + __rseq_offset + offsetof(struct rseq, rseq_cs));
	for (int n = 0; n < all; n++)
		committed += sequence(rseq_cs, sequence_descriptor, 20000);
	printf("%d of %d sequences have committed\n", committed, all);
	return 0;
}
