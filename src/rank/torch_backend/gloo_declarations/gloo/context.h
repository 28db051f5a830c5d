#include <gloo_declarations.h>
