import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";

document.getElementById("shell")?.remove(); // the placeholder until now
mount(App, { target: document.body });
