{{- define "gvList" -}}
<!-- Generated from api/v1alpha1 by `make api-reference`. Do not edit. -->
# API reference
{{ range . }}
`{{ .GroupVersionString }}` has these kinds, all cluster-scoped:
{{ range .SortedKinds }}
- [{{ . }}](#{{ . | lower }})
{{- end }}

The label and annotations of a Namespace are described in [Design](design.md#state-on-the-namespace), its conditions in [Conditions](reference/conditions.md). The Go types are in [api/v1alpha1](../api/v1alpha1).

The API server rejects objects that violate a rule in the "Validation" column or have an invalid name.
{{- $types := .SortedTypes }}
{{- range $types }}{{ if .GVK }}{{ template "type" . }}{{ end }}{{ end }}
{{- range $types }}{{ if not .GVK }}{{ template "type" . }}{{ end }}{{ end }}
{{ end }}
{{- end -}}

{{- define "type" }}

## {{ .Name }}

{{ .Doc }}
{{- if .References }}

Part of
{{- range $i, $reference := .SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $reference }}{{ end }}.
{{- end }}

{{ if .EnumValues }}| Value | Description |
| --- | --- |
{{- range .EnumValues }}
| `{{ .Name }}` | {{ template "value" markdownRenderFieldDoc .Doc }} |
{{- end }}
{{- else if .Members }}| Field | Type | Default | Description | Validation |
| --- | --- | --- | --- | --- |
{{- if .GVK }}
| `apiVersion` | string | | `{{ .GVK.Group }}/{{ .GVK.Version }}` | |
| `kind` | string | | `{{ .GVK.Kind }}` | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} |{{ if .Default }} `{{ template "default" .Default }}`{{ end }} | {{ markdownRenderFieldDoc .Doc | replace "<br />" " " }} |
{{- template "rules" .Validation }} |
{{- end }}
{{- else }}Validation:{{ template "rules" .Validation }}.
{{- end }}
{{- end }}

{{- /* crd-ref-docs renders an object as { key:value }. */}}
{{- define "default" -}}
{{- if eq . "{  }" }}{}{{ else }}{{ . | replace ":" ": " | replace "{ " "{" | replace " }" "}" }}{{ end }}
{{- end }}

{{- /* crd-ref-docs omits rules in CEL, except those of items. */}}
{{- define "rules" }}
{{- $separator := "" }}
{{- range . }}
{{- if not (hasPrefix "items:XValidation" .) }}{{ $separator }} {{ template "rule" . }}{{ $separator = "," }}{{ end }}
{{- end }}
{{- end }}

{{- /* The description of a constant, without its name. */}}
{{- define "value" -}}
{{- $text := regexReplaceAll "^\\w+ " (. | replace "<br />" " ") "" | trim }}
{{- trunc 1 $text | upper }}{{ substr 1 -1 $text }}
{{- end }}

{{- define "rule" -}}
{{- if hasPrefix "Required" . }}required
{{- else if hasPrefix "Optional" . }}optional
{{- else if or (eq . "MinLength: 1") (eq . "MinItems: 1") (eq . "MinProperties: 1") }}not empty
{{- else if hasPrefix "Schemaless" . }}any fields
{{- else if hasPrefix "Type: " . }}of type {{ . | trimPrefix "Type: " }}
{{- else if hasPrefix "Enum: " . }}one of {{ . | trimPrefix "Enum: [" | trimSuffix "]" | replace " " ", " }}
{{- else if hasPrefix "Minimum: " . }}at least {{ . | trimPrefix "Minimum: " }}
{{- else if hasPrefix "Maximum: " . }}at most {{ . | trimPrefix "Maximum: " | float64 | printf "%.0f" }}
{{- else if hasPrefix "MinItems: " . }}at least {{ . | trimPrefix "MinItems: " }} items
{{- else if hasPrefix "items:" . }}each item {{ template "rule" (. | trimPrefix "items:") }}
{{- else if hasPrefix "MaxItems: " . }}at most {{ . | trimPrefix "MaxItems: " }} items
{{- else if hasPrefix "MaxProperties: " . }}at most {{ . | trimPrefix "MaxProperties: " }} entries
{{- else if hasPrefix "MinLength: " . }}at least {{ . | trimPrefix "MinLength: " }} characters
{{- else if hasPrefix "MaxLength: " . }}at most {{ . | trimPrefix "MaxLength: " }} characters
{{- else if hasPrefix "Pattern: " . }}pattern {{ . | trimPrefix "Pattern: " }}
{{- else }}{{ . }}
{{- end }}
{{- end }}
