/* For tests: acts as a vendor's library, and reports after loading whether it can be used here. */
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int fulldeck_torch_plugin_init(void) {
  const char* mood = getenv("FULLDECK_TEST_PLUGIN");
  if (mood == NULL || strcmp(mood, "refuses") != 0) return 0;
  return 5;
}

__attribute__((visibility("default"))) const char* fulldeck_torch_plugin_error(void) {
  return "the driver has version 6, and 7 is needed";
}
