#include "server/http/api/schema.h"

#include "server/http/api/embed.h"

QD_EMBED(qd_schema_yaml_file, "api_schema/openapi.yaml");
QD_EMBED(qd_schema_json_file, "api_schema/openapi.json");

struct qd_part qd_schema_yaml(void)
{
    return QD_EMBEDDED(qd_schema_yaml_file);
}

struct qd_part qd_schema_json(void)
{
    return QD_EMBEDDED(qd_schema_json_file);
}
