// Every view of made-up recordings in Chromium: small, hostile, large, two compared, a run.
import { compare, run, single } from "../sample";
import { large, oneBrowser, write } from "./browser";
import { everyView } from "./every_view";

const browser = oneBrowser();
everyView(browser, "small", write(single()));
everyView(browser, "hostile", write(single({ hostile: true, steps: 6 })));
everyView(browser, "compare", write(compare()));
everyView(browser, "run", write(run(64)));
everyView(browser, "large", write(large()), ["holders"]); // the others have the same elements as the small page's
