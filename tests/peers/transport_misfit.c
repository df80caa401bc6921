/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of a transport that was built for another version of the contract. */
#include "comm/comm.h"

const struct jm_transport_plugin *jm_transport_entry(void)
{
	static const struct jm_transport_plugin plugin = {.abi = JM_TRANSPORT_ABI + 1};

	return &plugin;
}
