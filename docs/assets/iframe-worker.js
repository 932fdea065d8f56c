// Search without a server: browsers start no worker on a page opened from disk, so a hidden frame runs its script.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      frame.worker = this;
      this.frame = frame;
      const page = frame.contentDocument;
      page.open();
      page.write(
        "<html><body><script>" +
          'postMessage = (data) => frameElement.worker.dispatchEvent(new MessageEvent("message", { data }));' +
          `</scr` + `ipt><script src="${url}"></scr` + `ipt></body></html>`
      );
      page.close();
      this.ready = new Promise((done) => frame.contentWindow.addEventListener("load", done));
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
