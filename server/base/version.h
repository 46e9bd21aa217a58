#ifndef SERVER_BASE_VERSION_H
#define SERVER_BASE_VERSION_H

#define QD_VERSION "0.3.0"

#endif
