// The elements that make pages live. Without scripts, every page still shows its data.

import "./copy.js";
import "./live.js";
import "./playground.js";
