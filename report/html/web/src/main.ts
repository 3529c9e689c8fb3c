// Reads the data out of the page and shows it.
import "uplot/dist/uPlot.min.css";
import "./style/page.css";
import { App } from "./app/app";
import { decode, NoData } from "./model/load";
import { h, replace } from "./ui/dom";
import { applyTheme } from "./ui/theme";

async function start(): Promise<void> {
  applyTheme("auto");
  const page = document.getElementById("page")!;
  const holder = document.getElementById("memlab-data");
  try {
    const data = await decode(holder?.textContent ?? "");
    holder?.remove(); // megabytes of text that nobody needs any more
    new App(page, data);
    document.documentElement.dataset["ready"] = "yes";
  } catch (error) {
    replace(
      page,
      h(
        "div.failed",
        { attributes: { role: "alert" } },
        h("h1", "memlab"),
        h(
          "p",
          error instanceof NoData
            ? error.message
            : `The recording in this page cannot be read: ${error instanceof Error ? error.message : String(error)}. Write the page again with memlab-report html.`,
        ),
      ),
    );
  }
}

void start();
