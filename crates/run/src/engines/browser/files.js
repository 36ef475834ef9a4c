// Files in memory, for a module of WASI (preview 1,
// https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md).

// Makes a file system of `files`, a map from absolute paths to bytes. What the module writes to
// standard output and error goes line by line to `say`.
function fileSystem(files, say) {
  const error = { none: 0, badFile: 8, exists: 20, isFolder: 31, missing: 44, unsupported: 52, notFolder: 54 };
  const kind = { folder: 3, file: 4, terminal: 2 };
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  // Open files by number. Number 3 is the only folder that the module gets: the root.
  const open = new Map([[3, { path: '' }]]);
  const said = ['', '', ''];
  let next = 4;
  let memory;

  const view = () => new DataView(memory.buffer);
  const bytes = (at, length) => new Uint8Array(memory.buffer, at, length);
  const isFolder = (path) => path === '' || [...files.keys()].some((file) => file.startsWith(path + '/'));

  // Absolute path of a name that is relative to an open folder.
  function resolve(folder, at, length) {
    const name = decoder.decode(bytes(at, length).slice());
    const parts = [];
    for (const part of (open.get(folder).path + '/' + name).split('/')) {
      if (part === '..') parts.pop();
      else if (part !== '' && part !== '.') parts.push(part);
    }
    return parts.map((part) => '/' + part).join('');
  }

  function writeStatus(path, at) {
    const content = files.get(path);
    if (content === undefined && !isFolder(path)) return error.missing;
    bytes(at, 64).fill(0);
    view().setUint8(at + 16, content === undefined ? kind.folder : kind.file);
    view().setBigUint64(at + 24, 1n, true);
    view().setBigUint64(at + 32, BigInt(content === undefined ? 0 : content.length), true);
    return error.none;
  }

  // Calls `each` with every buffer of a list of buffers, until it returns fewer bytes than asked.
  function overBuffers(list, count, total, each) {
    let done = 0;
    for (let i = 0; i < count; i++) {
      const at = view().getUint32(list + 8 * i, true);
      const length = view().getUint32(list + 8 * i + 4, true);
      const got = each(at, length);
      done += got;
      if (got < length) break;
    }
    view().setUint32(total, done, true);
    return error.none;
  }

  function readAt(file, place, at, length) {
    const content = files.get(file.path);
    const part = content.subarray(place, place + length);
    bytes(at, part.length).set(part);
    return part.length;
  }

  function writeTo(file, at, length) {
    const content = files.get(file.path);
    if (file.appends) file.place = content.length;
    const longer = new Uint8Array(Math.max(content.length, file.place + length));
    longer.set(content);
    longer.set(bytes(at, length), file.place);
    files.set(file.path, longer);
    file.place += length;
    return length;
  }

  function sayOn(stream, at, length) {
    const lines = (said[stream] + decoder.decode(bytes(at, length).slice())).split('\n');
    said[stream] = lines.pop();
    lines.forEach(say);
    return length;
  }

  const functions = {
    args_get: () => error.none,
    args_sizes_get: (count, size) => environment(count, size),
    environ_get: () => error.none,
    environ_sizes_get: (count, size) => environment(count, size),
    clock_time_get(clock, _precision, at) {
      const milliseconds = clock === 0 ? Date.now() : performance.now();
      view().setBigUint64(at, BigInt(Math.round(milliseconds * 1e6)), true);
      return error.none;
    },
    random_get(at, length) {
      crypto.getRandomValues(bytes(at, length));
      return error.none;
    },
    sched_yield: () => error.none,
    proc_exit(code) {
      throw new Error(`the module ended with code ${code}`);
    },
    fd_prestat_get(fd, at) {
      if (fd !== 3) return error.badFile;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return error.none;
    },
    fd_prestat_dir_name(fd, at, length) {
      if (fd !== 3 || length < 1) return error.badFile;
      bytes(at, 1).set(encoder.encode('/'));
      return error.none;
    },
    fd_fdstat_get(fd, at) {
      const file = open.get(fd);
      if (file === undefined && fd > 2) return error.badFile;
      bytes(at, 24).fill(0);
      const isFile = file !== undefined && files.has(file.path);
      view().setUint8(at, file === undefined ? kind.terminal : isFile ? kind.file : kind.folder);
      view().setBigUint64(at + 8, ~0n & 0xffffffffffffffffn, true);
      view().setBigUint64(at + 16, ~0n & 0xffffffffffffffffn, true);
      return error.none;
    },
    fd_fdstat_set_flags: () => error.none,
    fd_filestat_get: (fd, at) => (open.has(fd) ? writeStatus(open.get(fd).path, at) : error.badFile),
    fd_close: (fd) => (open.delete(fd) ? error.none : error.badFile),
    fd_sync: () => error.none,
    fd_seek(fd, offset, from, at) {
      const file = open.get(fd);
      if (file === undefined) return error.badFile;
      const origin = [0, file.place, (files.get(file.path) ?? []).length][from];
      file.place = origin + Number(offset);
      view().setBigUint64(at, BigInt(file.place), true);
      return error.none;
    },
    fd_tell(fd, at) {
      if (!open.has(fd)) return error.badFile;
      view().setBigUint64(at, BigInt(open.get(fd).place), true);
      return error.none;
    },
    fd_read(fd, list, count, total) {
      const file = open.get(fd);
      if (file === undefined) return fd === 0 ? overBuffers(list, count, total, () => 0) : error.badFile;
      return overBuffers(list, count, total, (at, length) => {
        const got = readAt(file, file.place, at, length);
        file.place += got;
        return got;
      });
    },
    fd_pread(fd, list, count, offset, total) {
      const file = open.get(fd);
      if (file === undefined) return error.badFile;
      let place = Number(offset);
      return overBuffers(list, count, total, (at, length) => {
        const got = readAt(file, place, at, length);
        place += got;
        return got;
      });
    },
    fd_write(fd, list, count, total) {
      const file = open.get(fd);
      if (file === undefined && fd !== 1 && fd !== 2) return error.badFile;
      const write = file === undefined ? (at, length) => sayOn(fd, at, length) : (at, length) => writeTo(file, at, length);
      return overBuffers(list, count, total, write);
    },
    fd_readdir(fd, at, length, cookie, used) {
      const folder = open.get(fd);
      if (folder === undefined) return error.badFile;
      const names = new Map();
      for (const path of files.keys()) {
        if (!path.startsWith(folder.path + '/')) continue;
        const [name, ...rest] = path.slice(folder.path.length + 1).split('/');
        names.set(name, rest.length > 0 ? kind.folder : kind.file);
      }
      let place = 0;
      [...names].slice(Number(cookie)).forEach(([name, what], index) => {
        const text = encoder.encode(name);
        const entry = new Uint8Array(24 + text.length);
        const fields = new DataView(entry.buffer);
        fields.setBigUint64(0, cookie + BigInt(index + 1), true);
        fields.setUint32(16, text.length, true);
        fields.setUint8(20, what);
        entry.set(text, 24);
        const part = entry.subarray(0, Math.max(0, length - place));
        bytes(at + place, part.length).set(part);
        place += part.length;
      });
      view().setUint32(used, place, true);
      return error.none;
    },
    path_open(folder, _follow, at, length, how, _rights, _inherited, flags, opened) {
      if (!open.has(folder)) return error.badFile;
      const path = resolve(folder, at, length);
      const [create, asFolder, onlyNew, empty] = [1, 2, 4, 8].map((bit) => (how & bit) !== 0);
      if (files.has(path)) {
        if (asFolder) return error.notFolder;
        if (onlyNew) return error.exists;
        if (empty) files.set(path, new Uint8Array());
      } else if (!isFolder(path)) {
        if (!create) return error.missing;
        files.set(path, new Uint8Array());
      }
      open.set(next, { path, place: 0, appends: (flags & 1) !== 0 });
      view().setUint32(opened, next, true);
      next += 1;
      return error.none;
    },
    path_filestat_get: (folder, _follow, at, length, to) => (open.has(folder) ? writeStatus(resolve(folder, at, length), to) : error.badFile),
    path_unlink_file: (folder, at, length) => (files.delete(resolve(folder, at, length)) ? error.none : error.missing),
    path_rename(folder, at, length, toFolder, toAt, toLength) {
      const [from, to] = [resolve(folder, at, length), resolve(toFolder, toAt, toLength)];
      if (!files.has(from)) return error.missing;
      files.set(to, files.get(from));
      files.delete(from);
      return error.none;
    },
  };

  function environment(count, size) {
    view().setUint32(count, 0, true);
    view().setUint32(size, 0, true);
    return error.none;
  }

  return {
    // Imports for the compiled `module`. A function that is not offered returns an error.
    imports(module) {
      const refuse = () => error.unsupported;
      const names = WebAssembly.Module.imports(module).filter((one) => one.module === 'wasi_snapshot_preview1');
      return { wasi_snapshot_preview1: Object.fromEntries(names.map(({ name }) => [name, functions[name] ?? refuse])) };
    },
    // Must be called before the module runs.
    useMemory(of) {
      memory = of;
    },
    read: (path) => decoder.decode(files.get(path)),
    write: (path, text) => files.set(path, encoder.encode(text)),
  };
}
