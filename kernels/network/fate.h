/* What became of the nodes of a file: each pass says it where it removes a node. Private to
 * kernels/. */
#pragma once

#include "kernels/qk.h"

/* Notes that a node is gone, or that one of the nodes that it became is. `into` is the node of
 * which it is a part now, or NULL. The first fate counts, with two exceptions. Any other fate
 * replaces QK_FATE_REMOVED. Any but QK_FATE_REMOVED replaces that of a node that is a part of
 * itself, because a later pass may make what took the node's place a part of another node. */
void qk_fate_set(const struct qk_graph_call *call, const struct qk_node *node,
                 enum qk_fate_kind kind, const struct qk_node *into);

/* Makes `into` of each node the table in which it ends, if tables were joined: passes that join
 * tables change only the fate of the table that is gone, not those of its parts. */
void qk_fate_settle_tables(const struct qk_graph_call *call);
