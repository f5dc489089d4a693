// Command oracle answers for the CDI Go library: one JSON request a line on stdin, one JSON answer a line on stdout.
//
//	{"op": "read", "data": BASE64}                   {"ok", "error", "crash", "model", "minimum"}
//	{"op": "name", "text": NAME}                     {"ok", "error", "parts": [vendor, class, device]}
//	{"op": "inject", "files": [{"directory": 0, "name": "a.yaml", "data": BASE64}], "names": […], "document": {…}}
//	                                                 {"ok", "error", "crash", "document", "devices", "broken"}
//	{"op": "request", "text": PLUGIN, "id": ID}      {"ok", "error", "parts": [key]}
//	{"op": "requested", "text": VALUE}               {"ok", "error", "parts": names}
//	{"op": "normal", "document": {…}}                {"document"}: what the OCI types keep of it
//
// It is built once for each release of the library that the tests know (go.mod and old.mod).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

type file struct {
	Directory int    `json:"directory"`
	Name      string `json:"name"`
	Data      []byte `json:"data"`
}

type request struct {
	Op       string    `json:"op"`
	Data     []byte    `json:"data"`
	Text     string    `json:"text"`
	ID       string    `json:"id"`
	Files    []file    `json:"files"`
	Names    []string  `json:"names"`
	Document *oci.Spec `json:"document"`
}

type answer struct {
	OK       bool     `json:"ok"`
	Error    string   `json:"error,omitempty"`
	Crash    string   `json:"crash,omitempty"`
	Model    any      `json:"model,omitempty"`
	Minimum  string   `json:"minimum,omitempty"`
	Parts    []string `json:"parts,omitempty"`
	Document any      `json:"document,omitempty"`
	Devices  []string `json:"devices,omitempty"`
	Broken   []string `json:"broken,omitempty"`
}

func main() {
	place, err := os.MkdirTemp("", "cdi-oracle-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serve(place)
	_ = os.RemoveAll(place)
}

func serve(place string) {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if answers.Encode(answered(line, place)) != nil {
			return
		}
	}
}

// answered never panics: that the library does is one of the things to find out.
func answered(line []byte, place string) (given answer) {
	defer func() {
		if crash := recover(); crash != nil {
			given = answer{Crash: fmt.Sprint(crash)}
		}
	}()
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: "request: " + err.Error()}
	}
	switch asked.Op {
	case "read":
		return read(asked, place)
	case "name":
		return name(asked)
	case "request":
		key, err := cdi.AnnotationKey(asked.Text, asked.ID)
		return told([]string{key}, err)
	case "requested":
		_, names, err := cdi.ParseAnnotations(map[string]string{cdi.AnnotationPrefix + "x": asked.Text})
		return told(names, err)
	case "inject":
		return inject(asked, place)
	case "normal":
		return answer{OK: true, Document: asked.Document}
	}
	return answer{Error: "there is no op " + asked.Op}
}

func read(asked request, place string) answer {
	path := filepath.Join(place, "read.yaml")
	if err := os.WriteFile(path, asked.Data, 0o600); err != nil {
		return answer{Error: err.Error()}
	}
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return answer{Error: err.Error()}
	}
	minimum, err := cdi.MinimumRequiredVersion(spec.Spec)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{OK: true, Model: spec.Spec, Minimum: minimum}
}

func name(asked request) answer {
	vendor, class, device, err := parser.ParseQualifiedName(asked.Text)
	return told([]string{vendor, class, device}, err)
}

func told(parts []string, err error) answer {
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{OK: true, Parts: parts}
}

func inject(asked request, place string) answer {
	root, err := os.MkdirTemp(place, "inject-")
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer os.RemoveAll(root)
	directories := []string{filepath.Join(root, "0"), filepath.Join(root, "1")}
	for _, directory := range directories {
		if err := os.Mkdir(directory, 0o700); err != nil {
			return answer{Error: err.Error()}
		}
	}
	for _, each := range asked.Files {
		if err := os.WriteFile(filepath.Join(directories[each.Directory], each.Name), each.Data, 0o600); err != nil {
			return answer{Error: err.Error()}
		}
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(directories...), cdi.WithAutoRefresh(false))
	if err != nil {
		return answer{Error: err.Error()}
	}
	given := answer{Devices: cache.ListDevices()}
	for path := range cache.GetErrors() {
		short, _ := filepath.Rel(root, path)
		given.Broken = append(given.Broken, short)
	}
	sort.Strings(given.Broken)
	if _, err := cache.InjectDevices(asked.Document, asked.Names...); err != nil {
		given.Error = err.Error()
		return given
	}
	given.OK, given.Document = true, asked.Document
	return given
}
