/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings out of bytes that devices sent: messages, tables and lines of text. Whatever the bytes
 * are, the answer is a number that is possible, or NAN for no reading.
 */
#ifndef JM_PARSE_READING_H
#define JM_PARSE_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* W: no reading is higher; drivers have 65535 W and more where they have none. */
#define JM_MAX_WATTS	    1e6	 /* of a node, and of what feeds it */
#define JM_MAX_DEVICE_WATTS 15e3 /* of a processor, a GPU, a module of both */

/*
 * DCMI 1.5, 6.6.1: the response to Get Power Reading, with its completion code: 00 dc, then, low
 * byte first, the power now, its least, its greatest and its mean (u16, W), a time stamp (u32), the
 * period of the statistics (u32, ms) and the state, whose bit 6 is set while the power is measured.
 */
double jm_parse_dcmi(const uint8_t *bytes, size_t n);

/* "1234 J 1667311234567890 us", the stamp may be missing: *ret_stamp_us is 0 then. NAN = no such
 * value. */
double jm_parse_cray(const char *text, char unit, int64_t *ret_stamp_us);

/*
 * The metrics table of HSMP protocol version 6 (MI300A): struct hsmp_metric_table of Linux'
 * asm/amd_hsmp.h, packed to four bytes. Powers are 2^-10 W, accumulators 2^-16 J.
 */
#define JM_HSMP_TABLE 1404 /* bytes */
#define JM_HSMP_WATT  0x1p-10
#define JM_HSMP_JOULE 0x1p-16
struct jm_hsmp_table {
	uint64_t stamp;	  /* the firmware's, 10 ns */
	double joules[5]; /* socket, CCD, XCD, AID, HBM */
	double watts, limit;
};
/* False: another size, or what no table holds. A power or limit that cannot be is NAN. */
bool jm_parse_hsmp(const uint8_t *bytes, size_t n, struct jm_hsmp_table *ret);

/*
 * A file of Linux's pressure stall information: the total of the line that begins with `what`
 * ("some" or "full") as seconds. NAN = there is no such line.
 */
double jm_parse_pressure(const char *text, const char *what);

/* "99.5 W", "12.60W": a value above 0 with that unit. NAN = "N/A" or another text. */
double jm_parse_unit(const char *text, char unit);

/* "103.5E+00,NAN,1.2": how many there are, at most `most` of them in ret; what is no number is
 * NAN. */
int jm_parse_list(const char *text, double *ret, int most);

/*
 * A sample of PTDaemon: "Time,MM-DD-YYYY HH:MM:SS.mmm,Watts,W,Volts,V,Amps,A,PF,P,Mark,M". Of
 * several channels the sum, which stands first. Errors are -1 there. False: no sample.
 */
struct jm_ptd_sample {
	int64_t t_ns; /* since 1970 by the clock of the daemon's machine, as if its zone were UTC */
	double watts, volts, amps, factor; /* NAN = not given or an error */
};
bool jm_parse_ptd(const char *line, struct jm_ptd_sample *ret);

#endif
