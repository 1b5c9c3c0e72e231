// Loads the custom elements that make pages interactive. Without scripts, every page still shows its data.

import "./copy.js";
import "./keys.js";
import "./live.js";
import "./playground.js";
import "./time.js";
