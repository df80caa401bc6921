/* SPDX-License-Identifier: Apache-2.0 */
/* Questions over SNMP, by net-snmp, which is opened when it is needed. */
#ifndef JM_VENDOR_SNMP_H
#define JM_VENDOR_SNMP_H

#include "library.h"

#include <net-snmp/net-snmp-config.h>
/* */
#include <net-snmp/net-snmp-includes.h>
/* */
#include <net-snmp/library/large_fd_set.h>

#define JM_SNMP_CALLS(X)                                                                           \
	X(netsnmp_ds_set_boolean)                                                                  \
	X(netsnmp_set_mib_directory)                                                               \
	X(init_snmp)                                                                               \
	X(netsnmp_register_loghandler)                                                             \
	X(set_persistent_directory)                                                                \
	X(snmp_sess_init)                                                                          \
	X(snmp_sess_open)                                                                          \
	X(snmp_sess_close)                                                                         \
	X(snmp_sess_async_send)                                                                    \
	X(snmp_sess_select_info2)                                                                  \
	X(snmp_sess_read2)                                                                         \
	X(snmp_sess_timeout)                                                                       \
	X(netsnmp_large_fd_set_init)                                                               \
	X(netsnmp_large_fd_set_select)                                                             \
	X(netsnmp_large_fd_set_cleanup)                                                            \
	X(snmpv3_get_report_type)                                                                  \
	X(snmp_error)                                                                              \
	X(snmp_pdu_create)                                                                         \
	X(snmp_add_null_var)                                                                       \
	X(snmp_free_pdu)                                                                           \
	X(snmp_errstring)                                                                          \
	X(generate_Ku)

struct jm_snmp_calls {
#define X(name) __typeof__(&name) name;
	JM_SNMP_CALLS(X)
#undef X
};

struct jm_snmp_peer {
	const char *host;
	int port;
	double timeout; /* s, of a whole answer; after half of it the question is sent again */
	/* Files whose first line is the secret; NULL = none. Without a user it is SNMPv2c. */
	const char *community_file, *user, *auth_file, *priv_file;
};

struct jm_snmp_value {
	oid name[MAX_OID_LEN];
	size_t length; /* 0 = none */
	double scale;
};

struct jm_snmp {
	struct jm_snmp_calls call;
	void *line;
	char host[128];
	int64_t timeout_ns;
	/* the question that is out */
	int request;
	bool waiting, answered;
	const struct jm_snmp_value *const *value;
	int n;
	double *out;
};

/* Loads the library and makes a session; asks nothing. */
int jm_snmp_open(struct jm_snmp *snmp, const struct jm_snmp_peer *peer, struct jm_err *err);
void jm_snmp_close(struct jm_snmp *snmp);
/* "1.3.6.1.4.1.318"; false for anything else. */
bool jm_snmp_parse(const char *text, struct jm_snmp_value *out);
/* Numbers of n objects in one question, without their scale. NAN: no number, or one below 0, by
 * which PDUs say that they cannot tell. False = no answer. */
bool jm_snmp_ask(
	struct jm_snmp *snmp, const struct jm_snmp_value *const *value, int n, double *out);

#endif
