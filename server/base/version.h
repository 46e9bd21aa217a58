#ifndef SERVER_BASE_VERSION_H
#define SERVER_BASE_VERSION_H

#define QD_VERSION "0.4.0"

#endif
