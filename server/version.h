#ifndef SERVER_VERSION_H
#define SERVER_VERSION_H

#define QD_VERSION "0.1.0"

#endif
