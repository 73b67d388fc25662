// The chart library, in a file of its own that is loaded with the first chart.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export default uPlot;
