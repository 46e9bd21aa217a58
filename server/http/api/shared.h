/* Triton's calls that register shared memory; what they do is in oip/regions.h. Of CUDA's there is
 * never any. */
#ifndef SERVER_HTTP_API_SHARED_H
#define SERVER_HTTP_API_SHARED_H

#include "server/http/api/visit.h"

enum qd_status qd_answer_regions(const struct qd_visit *visit);
enum qd_status qd_begin_register(const struct qd_visit *visit);
enum qd_status qd_answer_unregister(const struct qd_visit *visit);

enum qd_status qd_answer_no_regions(const struct qd_visit *visit);
enum qd_status qd_refuse_cuda(const struct qd_visit *visit);

#endif
