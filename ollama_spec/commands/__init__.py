"""One file per verb; each exports `command`, a click command. Commands never catch errors."""
