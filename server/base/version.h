#pragma once

#define QD_VERSION "0.4.0"
