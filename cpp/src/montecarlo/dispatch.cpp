// The version of the kernels that this machine runs.
#include "montecarlo/kernels.hpp"
#include "numerics/instruction_set.hpp"

namespace hockeystick::kernels {

extern const Table table_baseline, table_avx2, table_avx512;

const Table* find(const char* name) { return find_version<Table>(name, {HOCKEYSTICK_BUILT(table)}); }

const Table& table() {
    static const Table& chosen = *find(instruction_set());
    return chosen;
}

}  // namespace hockeystick::kernels
