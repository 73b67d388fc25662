import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";

document.getElementById("shell")?.remove(); // it stood here until there was something to show
mount(App, { target: document.body });
