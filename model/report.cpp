// What the compiler makes of a report's members, once (report.hpp says why).
#include "model/report.hpp"

namespace memlab::model {

Report::Report() = default;
Report::Report(const Report& other) = default;
Report::Report(Report&& other) noexcept = default;
Report& Report::operator=(const Report& other) = default;
Report& Report::operator=(Report&& other) noexcept = default;
Report::~Report() = default;

}  // namespace memlab::model
