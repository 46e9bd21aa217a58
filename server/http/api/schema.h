/* The description of the interface: api_schema/openapi.yaml, and the same as JSON. Both are part of
 * the program, so that a running server describes itself without a file beside it. They are
 * constant, so any thread may read them. */
#ifndef SERVER_HTTP_API_SCHEMA_H
#define SERVER_HTTP_API_SCHEMA_H

#include "server/memory/text.h"

struct qd_part qd_schema_yaml(void);
struct qd_part qd_schema_json(void);

#endif
