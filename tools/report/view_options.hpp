// The options of the views in report/views/, from the command line.
#pragma once

#include "report/views/site_table.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

/// Options that a command does not have keep the view's defaults.
inline report::ViewOptions make_view_options(const ReportOptions& arguments) {
    report::ViewOptions view;
    view.style = make_style(arguments.style);
    if (!arguments.sort.empty()) {
        view.order = report::parse_order(arguments.sort);
    }
    view.top = arguments.top;
    view.templates = arguments.templates;
    view.filter = arguments.filter.text();
    view.working_directory = working_directory();
    view.device = arguments.device;
    view.by_parts = arguments.tells_nn_modules_apart();
    return view;
}

}  // namespace memlab::tools
