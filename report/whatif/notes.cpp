// What a what-if leaves out: where a row is less certain than it looks.
#include <algorithm>

#include "report/text/units.hpp"
#include "report/whatif/table.hpp"

namespace memlab::report::whatif {

std::vector<std::string> make_notes(const Program& program, const Table& table) {
    const std::vector<Row>& rows = table.rows;
    std::vector<std::string> notes;
    const auto recorded_pool = std::find_if(
        rows.begin(), rows.end(), [](const Row& row) { return row.policy.is_recorded_pool(); });
    if (recorded_pool != rows.end() && program.recorded.pooled != 0 && !table.is_as_recorded &&
        !table.limited) {
        notes.emplace_back(
            "memlab's pool with the recorded settings reserves " +
            report::format_bytes(recorded_pool->outcome.reserved_peak) + " here, and " +
            report::format_bytes(program.recorded.reserved_peak) +
            " in the recording: there it also saw what other programs and kinds of memory took.");
    }
    const auto any = [&](auto which) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const Row& row) { return which(row.policy); });
    };
    if (!program.streams_known && any([](const Policy& policy) { return policy.per_stream; })) {
        notes.emplace_back(
            "The recording names no streams (cudaMalloc has none): allocators that keep streams "
            "apart are run with one stream.");
    }
    if (any([](const Policy& policy) { return policy.one_stream; })) {
        notes.emplace_back(
            "The recording does not tell whether all work went to one stream: memlab's pool with "
            "MEMLAB_ONE_STREAM=on is run as if it did, and as if no free made the host wait.");
    }
    if (program.recorded.pooled != 0 && any([](const Policy& policy) {
            return policy.kind == PolicyKind::allocator && policy.frees_in_stream_order &&
                   !policy.ours;
        })) {
        notes.emplace_back(
            "memlab's pool reuses freed memory when the device was done with it, the others at "
            "once.");
    }
    const bool has_marks =
        std::any_of(program.steps.begin(), program.steps.end(),
                    [](const Step& step) { return step.kind == StepKind::mark; });
    if (!has_marks && any([](const Policy& policy) { return policy.releases_at_marks; })) {
        notes.emplace_back(
            "cudaMallocAsync gives memory back when the program synchronizes; the recording has no "
            "marks that would tell when, so it never does here.");
    }
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.packing.limited; })) {
        notes.emplace_back(
            "The program is too large for some orders of the offline packing: a better one may "
            "exist.");
    }
    if (!program.outside_known) {
        notes.emplace_back(
            "Memory in use besides the program's allocations was not sampled and is not "
            "subtracted.");
    }
    if (program.attempts != 0) {
        notes.emplace_back(
            report::format_plural(program.attempts, "allocation") + " failed in the recording. " +
            (program.attempts == 1 ? "It is tried and freed" : "They are tried, and each freed") +
            " at once: what the program would have done with it is not known. \"of held\" "
            "leaves it out.");
    }
    if (program.inconsistencies != 0) {
        notes.emplace_back(report::format_plural(program.inconsistencies, "event") +
                           " contradicted earlier ones, corrected here.");
    }
    return notes;
}

}  // namespace memlab::report::whatif
