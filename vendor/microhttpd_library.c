/* SPDX-License-Identifier: Apache-2.0 */
#include "microhttpd_library.h"

int jm_microhttpd_open(const struct jm_symbol *symbols, size_t n, void *calls, struct jm_err *err)
{
	const struct jm_library library = {
		.title = "libmicrohttpd",
		.variable = "JM_MICROHTTPD_LIB",
		.names = {"libmicrohttpd.so.12", "libmicrohttpd.so"},
		.mend = "install libmicrohttpd (Debian: libmicrohttpd12) or name the file in "
			"JM_MICROHTTPD_LIB",
		.symbols = symbols,
		.n_symbols = n,
	};

	return jm_library_open(&library, calls, err);
}
