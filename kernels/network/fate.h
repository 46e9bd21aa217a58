/* What became of the nodes of a file: each pass says it where it removes a node. Private to
 * kernels/. */
#ifndef KERNELS_NETWORK_FATE_H
#define KERNELS_NETWORK_FATE_H

#include "kernels/qk.h"

/* Notes that a node is gone, or that one of the nodes that it became is. `into` is the node of
 * which it is a part now, or NULL. The first fate counts, but any other counts more than
 * QK_FATE_REMOVED, or than that of a node that is a part of itself: what a pass puts into the place
 * of a node may become a part of another in a later pass. */
void qk_fate_set(const struct qk_graph_call *call, const struct qk_node *node,
                 enum qk_fate_kind kind, const struct qk_node *into);

#endif
