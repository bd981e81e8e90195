// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The program that profiling.md profiles: writes a text at random, counts its words and prints the
 * most frequent ones. With -DFULL_HASH it hashes whole words instead of their first three letters.
 */
#include <stdio.h>
#include <string.h>

#define SLOTS 4096
#define WORDS 400000
#define LETTERS 4
#ifdef FULL_HASH
#define HASHED LETTERS
#else
#define HASHED (LETTERS - 1)
#endif

struct word {
	char text[LETTERS + 1];
	unsigned int count;
};

static struct word table[SLOTS];

static unsigned int random_letter(void)
{
	static unsigned int state = 1;

	state = state * 1103515245 + 12345;
	return (state >> 16) % 6;
}

static void write_word(char *text)
{
	for (int i = 0; i < LETTERS; i++)
		text[i] = 'a' + random_letter();
	text[LETTERS] = 0;
}

static unsigned int hash_word(const char *text)
{
	unsigned int hash = 0;

	for (int i = 0; i < HASHED; i++)
		hash = hash * 31 + text[i];
	return hash % SLOTS;
}

static int compare_texts(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a - *b;
}

static struct word *find_word(const char *text)
{
	unsigned int slot = hash_word(text);

	while (table[slot].count && compare_texts(table[slot].text, text))
		slot = (slot + 1) % SLOTS;
	return &table[slot];
}

static void count_words(void)
{
	char text[LETTERS + 1];

	for (int i = 0; i < WORDS; i++) {
		struct word *word;

		write_word(text);
		word = find_word(text);
		memcpy(word->text, text, sizeof(text));
		word->count++;
	}
}

static int compare_words(const struct word *a, const struct word *b)
{
	return a->count != b->count ? (int)(a->count - b->count) : compare_texts(a->text, b->text);
}

static void sort_words(void)
{
	for (int end = SLOTS - 1; end > 0; end--) {
		for (int i = 0; i < end; i++) {
			if (compare_words(&table[i], &table[i + 1]) < 0) {
				struct word word = table[i];

				table[i] = table[i + 1];
				table[i + 1] = word;
			}
		}
	}
}

static void print_words(void)
{
	for (int i = 0; i < 5; i++)
		printf("%s %u\n", table[i].text, table[i].count);
}

int main(void)
{
	count_words();
	sort_words();
	print_words();
	return 0;
}
