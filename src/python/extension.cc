// The module `firstlight` for a user's own Python.
#include "python/vocabulary.h"

PYBIND11_MODULE(firstlight, m) { firstlight::bind_vocabulary(m); }
