// The elements that make pages live. Without scripts, every page still shows its data.

import "./copy.js";
import "./keys.js";
import "./live.js";
import "./playground.js";
import "./time.js";
