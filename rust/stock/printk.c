// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of Rust code on a kernel without CONFIG_RUST, whose vsprintf() warns of "%pA": they
 * are formatted here. Kbuild makes the kernel crate call this in place of _printk().
 */
#include <linux/kernel.h>
#include <linux/printk.h>
#include <linux/sprintf.h>
#include <linux/stdarg.h>
#include <linux/string.h>

int ebb_stock_printk(const char *format, ...);

/*
 * @format is one of rust/kernel/print.rs: two characters of a level, then "%s: %pA", or "%pA" for
 * the continuation of a line.
 */
int ebb_stock_printk(const char *format, ...)
{
	const char *name = "", *separator = "";
	char text[256];
	char *end = text + sizeof(text) - 1;
	va_list arguments;

	va_start(arguments, format);
	if (!strcmp(format + 2, "%s: %pA")) {
		name = va_arg(arguments, const char *);
		separator = ": ";
	}
	/* It returns where the whole text would end, and writes nothing from @end on. */
	*min(end, rust_fmt_argument(text, end, va_arg(arguments, const void *))) = '\0';
	va_end(arguments);

	return _printk("%c%c%s%s%s", format[0], format[1], name, separator, text);
}
