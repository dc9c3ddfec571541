#include <gloo/context.h>
