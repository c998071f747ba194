{{/* The rules that several policies contain. The arguments are CEL expressions. The reasons are comments in the policies,
     so that readers of the manifests find them. */}}

{{/* Whether a selector, which can be absent, selects a Namespace with these labels, as in
     internal/initialization/selector.go. isUnnamed is empty after a name was generated. */}}
{{define "selects" -}}
has({{.selector}}) &&
{{.selector}}.?matchLabels.orValue({}).all(k,
  k in {{.labels}} && {{.labels}}[k] == {{.selector}}.matchLabels[k]
{{- if .isUnnamed}} &&
  !({{.isUnnamed}} && k == 'kubernetes.io/metadata.name'){{end}}) &&
{{.selector}}.?matchExpressions.orValue([]).all(r,
{{- if .isUnnamed}}
  {{.isUnnamed}} && r.key == 'kubernetes.io/metadata.name' ? !(r.operator in ['In', 'DoesNotExist']) :
{{- end}}
  r.operator == 'In' ? r.key in {{.labels}} && {{.labels}}[r.key] in r.?values.orValue([]) :
  r.operator == 'NotIn' ? !(r.key in {{.labels}} && {{.labels}}[r.key] in r.?values.orValue([])) :
  r.operator == 'Exists' ? r.key in {{.labels}} :
  r.operator == 'DoesNotExist' ? !(r.key in {{.labels}}) : true)
{{- end}}

{{/* Whether a list contains a name. */}}
{{define "hasNames"}}{{.list}}.matches('[^,\\s]'){{end}}

{{/* Whether a new Namespace is exempt from initialization. */}}
{{define "isExempt" -}}
object.metadata.?name.orValue('') in
[{{.requiredNamespaces}}, string(params.?systemNamespace.orValue('-')),
string(params.?sourceNamespace.orValue('-'))]
{{- end}}

{{/* Whether the key k of a label of a new Namespace is reserved for the operator. */}}
{{define "isReservedLabel" -}}
k.startsWith('nslifecycle.dev/') && !(k in [{{.settableLabels}}])
{{- end}}

{{/* Whether a new Namespace has keys that are reserved for the operator. */}}
{{define "hasReservedKeys" -}}
object.metadata.?labels.orValue({}).exists(k, {{include "isReservedLabel"}}) ||
object.metadata.?annotations.orValue({}).exists(k, k.startsWith('nslifecycle.dev/'))
{{- end}}

{{/* The parts of the value v of a label or annotation that a template sets on a new Namespace. */}}
{{define "partsOfMetadata" -}}
v.?parts.orValue([]).map(p,
  has(p.text) ? string(p.text) :
  has(p.label) ? variables.labels[?p.label].orValue('') :
  has(p.annotation) ? object.metadata.annotations[?p.annotation].orValue(string(p.?default.orValue(''))) :
  request.userInfo.username).map(s, s.size() > 1024 ? '' : s)
{{- end}}

{{/* Whether the fields of an entry in managedFields, at most five levels of them, are also those of another entry. A map
     without fields contains all of its part of the object. */}}
{{define "isSubset" -}}
{{.fields}} == {{.of}} || {{.fields}}.all(k1, k1 in {{.of}} && ({{.fields}}[k1] == {{.of}}[k1] || {{.fields}}[k1].size() > 0 &&
  {{.fields}}[k1].all(k2, k2 in {{.of}}[k1] && ({{.fields}}[k1][k2] == {{.of}}[k1][k2] || {{.fields}}[k1][k2].size() > 0 &&
    {{.fields}}[k1][k2].all(k3, k3 in {{.of}}[k1][k2] &&
      ({{.fields}}[k1][k2][k3] == {{.of}}[k1][k2][k3] || {{.fields}}[k1][k2][k3].size() > 0 &&
      {{.fields}}[k1][k2][k3].all(k4, k4 in {{.of}}[k1][k2][k3] &&
        ({{.fields}}[k1][k2][k3][k4] == {{.of}}[k1][k2][k3][k4] || {{.fields}}[k1][k2][k3][k4].size() > 0 &&
        {{.fields}}[k1][k2][k3][k4].all(k5, k5 in {{.of}}[k1][k2][k3][k4] &&
          {{.fields}}[k1][k2][k3][k4][k5] == {{.of}}[k1][k2][k3][k4][k5])))))))))
{{- end}}

{{/* Whether the user may initialize a namespace. */}}
{{define "mayInitialize" -}}
authorizer.group('').resource('namespaces').name({{.namespace}}).check('initialize').allowed()
{{- end}}

{{/* Whether the user may write to a namespace while it is being initialized, or change what templates lock. */}}
{{define "mayProvision" -}}
{{include "mayInitialize" "namespace" .namespace}} ||
  authorizer.group('').resource('namespaces').name({{.namespace}}).check('provision').allowed()
{{- end}}

{{/* Whether the user has all rights of a ServiceAccount. The verb impersonate:serviceaccount of constrained impersonation is
     not sufficient: it grants only the requests that other rules list. */}}
{{define "mayImpersonate" -}}
authorizer.group('').resource('serviceaccounts').namespace({{.namespace}})
.name({{.name}}).check('impersonate').allowed()
{{- end}}

{{/* The confined subjects of a configuration, as NAMESPACE:NAME. */}}
{{define "confinedSubjects" -}}
{{.configuration}}.?initializers.orValue([]).filter(i, i.?confinement.orValue('') == 'InitializingNamespaces')
.map(i, i.?subjects.orValue([]).filter(s, s.kind == 'ServiceAccount')
  .map(s, s.?namespace.orValue('') + ':' + s.name).join(','))
.join(',').split(',').filter(s, s != '')
{{- end}}

{{/* Whether the user is one of these subjects. */}}
{{define "containsUser" -}}
{{.subjects}}.exists(s,
  s.kind == 'Group' ? s.name in request.userInfo.?groups.orValue([]) :
  s.kind == 'User' ? s.name == request.userInfo.username :
  'system:serviceaccount:' + s.?namespace.orValue('') + ':' + s.name == request.userInfo.username)
{{- end}}

{{/* Whether a request to a terminating namespace deletes an object, or finishes its deletion. */}}
{{define "cleansUp" -}}
has(namespaceObject.metadata.deletionTimestamp) &&
(request.operation == 'DELETE' ||
 request.operation == 'UPDATE' && has(oldObject.metadata.deletionTimestamp) &&
 request.?subResource.orValue('') in ['', 'status'])
{{- end}}

{{/* Whether a condition c of a Namespace belongs to the operator, apart from those of initializers. */}}
{{define "isOwnCondition" -}}
c.type in ['Initializing', 'Ready', 'Stalled'] || c.type.startsWith('nslifecycle.dev/')
{{- end}}

{{/* Whether a condition c of a Namespace reports that an initializer was skipped. */}}
{{define "isSkipCondition" -}}
c.type.endsWith('/Initialized') && c.?reason.orValue('') in ['TimedOut', 'Deregistered']
{{- end}}

{{/* Whether a condition c of a Namespace belongs to an initializer and must not change in this update: those that report
     that it was skipped and, while the Namespace is initializing, that it has finished. An initializer that lacks the verb
     "initialize" reports this in its condition. */}}
{{define "isInitializerCondition" -}}
c.type.endsWith('/Initialized') && (c.?reason.orValue('') in ['TimedOut', 'Deregistered'] ||
  c.status != 'False' && oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue())
{{- end}}

{{/* Whether a Namespace is initialized or terminating before an update. */}}
{{define "wasInitialized" -}}
(!oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() ||
 has(oldObject.metadata.deletionTimestamp))
{{- end}}

{{define "ownConditions" -}}
{{.object}}.?status.?conditions.orValue([]).filter(c, {{include "isOwnCondition"}} || c.type.endsWith('/Initialized'))
{{- end -}}
{{/* Whether a user who may not initialize the Namespace changes conditions of the operator or of initializers, once it is
     initialized or terminating, or before sends a list without any of them. The API server stops the evaluation of long
     lists. */}}
{{define "changesConditions" -}}
request.?subResource.orValue('') == 'status' &&
object.?status.?conditions != oldObject.?status.?conditions &&
({{include "wasInitialized"}} &&
 (object.?status.?conditions.orValue([]).size() + oldObject.?status.?conditions.orValue([]).size() > 1000 ||
  {{include "ownConditions" "object" "object"}} !=
  {{include "ownConditions" "object" "oldObject"}}) ||
 object.?status.?conditions.orValue([]).size() <= 1000 &&
 {{include "ownConditions" "object" "object"}}.size() == 0) &&
!{{include "mayInitialize" "namespace" "oldObject.metadata.name"}}
{{- end}}

{{/* Whether a user who may not initialize the Namespace changes the records of the operator, once it is initialized or
     terminating. */}}
{{define "changesRecords" -}}
{{include "wasInitialized"}} &&
[{{.recordAnnotations}}].exists(k,
  object.metadata.?annotations[?k] != oldObject.metadata.?annotations[?k]) &&
!{{include "mayInitialize" "namespace" "oldObject.metadata.name"}}
{{- end}}

{{/* The keys of labels or annotations that templates lock, from the record of a Namespace. */}}
{{define "lockedKeys" -}}
{{.record}}.findAll('{{.pattern}}').map(s, s.split('":"')[1]).join(',').split(',')
{{- end}}

{{/* Whether an update omits labels or annotations that templates lock. A template that no longer contains a key removes it. */}}
{{define "omitsLocked" -}}
!request.?options.?fieldManager.orValue('').startsWith('nslifecycle-template:') &&
[oldObject.metadata.?annotations[?'nslifecycle.dev/applied-templates'].orValue('')].exists(r,
  object.metadata.?labels != oldObject.metadata.?labels &&
  {{include "lockedKeys" "record" "r" "pattern" .lockedLabelsPattern}}.exists(k,
    oldObject.metadata.?labels[?k].hasValue() && !object.metadata.?labels[?k].hasValue()) ||
  object.metadata.?annotations != oldObject.metadata.?annotations &&
  {{include "lockedKeys" "record" "r" "pattern" .lockedAnnotationsPattern}}.exists(k,
    oldObject.metadata.?annotations[?k].hasValue() && !object.metadata.?annotations[?k].hasValue()))
{{- end}}

{{/* The names of the templates in the record of a Namespace. Each has an object that starts with a revision, so no name of
     a field or of an object is found. */}}
{{define "recordedTemplates" -}}
{{.record}}.findAll('"[-.a-z0-9]+":[{]"(revision|target)"').map(s, s.split('"')[1])
{{- end}}
