// The charts' library, in a file of its own that is loaded when somebody looks at figures.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export default uPlot;
